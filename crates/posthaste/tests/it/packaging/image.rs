//! The Dockerfile and the samples for Docker and Kubernetes, held to the repository and to the program.

use std::time::Duration;

use posthaste::cli;
use posthaste::http::openapi::document;

use super::{longest_stop, read, repository, settings};

/// How long Docker and Kubernetes wait for a stop if nobody says otherwise.
const DOCKER_WAITS: Duration = Duration::from_secs(10);

/// The instructions of a Dockerfile with their arguments.
fn instructions(text: &str) -> Vec<(String, String)> {
    let whole = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let joined = whole.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.trim().split_once(' '));
    lines.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

fn all<'d>(file: &'d [(String, String)], name: &str) -> Vec<&'d str> {
    file.iter().filter(|(other, _)| other == name).map(|(_, rest)| rest.as_str()).collect()
}

/// The argument of an instruction that stands once in the last stage, which is the image.
fn only<'d>(file: &'d [(String, String)], name: &str) -> &'d str {
    let last = file.iter().rposition(|(name, _)| name == "FROM").unwrap_or(0);
    let [one] = all(&file[last..], name)[..] else { panic!("{name} stands there once: {file:?}") };
    one
}

/// The words of `["a", "b"]`.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{error}: {list}"))
}

/// The variables of the program in a file, as `NAME=value` or `NAME: value`; those that come from elsewhere are left out.
fn variables(lines: impl Iterator<Item = impl AsRef<str>>) -> Vec<(String, String)> {
    let mut found = vec![];
    for line in lines {
        let line = line.as_ref().replace("{name: ", "").replace(", value: ", "=").replace(": ", "=");
        let line = line.trim().trim_start_matches("- ").trim_end_matches('}');
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| name.starts_with("POSTHASTE__"))
        {
            found.push((name.to_owned(), value.to_owned()));
        }
    }
    found
}

/// The seconds in a line such as `stop_grace_period: 45s`.
fn seconds(text: &str, key: &str) -> Duration {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{key}: ")));
    let number = line.unwrap_or_else(|| panic!("{key} is missing")).trim_end_matches('s');
    Duration::from_secs(number.parse().unwrap())
}

#[test]
fn every_path_of_the_image_exists() {
    let file = instructions(&read("Dockerfile"));
    let mut from_here = 0;
    for copy in all(&file, "COPY") {
        let parts: Vec<&str> = copy.split(' ').filter(|part| !part.starts_with("--chown")).collect();
        let Some((_, sources)) = parts.split_last() else { panic!("{copy}") };
        if sources[0].starts_with("--from=") {
            assert_eq!(sources[0], "--from=build");
            let made = ["/src/target/release/posthaste", "/out/state"];
            assert!(made.contains(&sources[1]), "{copy}: the first stage makes {made:?}");
            continue;
        }
        for source in sources {
            assert!(repository(source).exists(), "{copy}: {source} is not in the repository");
            from_here += 1;
        }
    }
    assert!(from_here >= 4);
    let build = all(&file, "RUN")[0];
    assert!(
        build.contains("cargo build --release --locked -p posthaste")
            && build.contains("mkdir -p /out/state")
    );
    let rust =
        read("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = ").map(str::to_owned));
    let rust = rust.unwrap().replace('"', "");
    assert!(all(&file, "FROM")[0].contains(&format!("rust:{rust}-")), "the image builds with Rust {rust}");
    // What cargo build needs beside its manifests is copied: nothing outside of crates is included by the program.
    assert!(all(&file, "COPY").contains(&"crates crates"));
}

#[test]
fn the_image_starts_and_asks_a_program_that_exists() {
    let file = instructions(&read("Dockerfile"));
    let program = all(&file, "COPY")
        .iter()
        .find_map(|copy| copy.strip_prefix("--from=build /src/target/release/posthaste "));
    let program = program.unwrap();
    let mut start = words(only(&file, "ENTRYPOINT"));
    start.extend(words(only(&file, "CMD")));
    let health = only(&file, "HEALTHCHECK").split_once("CMD ").unwrap().1;
    for call in [start, words(health)] {
        assert_eq!(call[0], program);
        let parsed = cli::command().try_get_matches_from(&call);
        assert!(parsed.is_ok(), "{call:?}: {}", parsed.unwrap_err());
    }
    assert_eq!((only(&file, "USER"), only(&file, "STOPSIGNAL")), ("nonroot", "SIGTERM"));
    assert_eq!(
        only(&file, "VOLUME"),
        only(&file, "WORKDIR").trim_start_matches("/src"),
        "the state is in the volume"
    );
}

#[test]
fn the_settings_of_the_image_are_right() {
    let file = instructions(&read("Dockerfile"));
    let config = settings(&variables(all(&file, "ENV").into_iter()));
    let usual = settings(&[]);
    let port = |config: &posthaste::config::Config| {
        config.server.listen.to_string().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap()
    };
    assert_eq!(only(&file, "EXPOSE"), port(&usual));
    assert_eq!(port(&config), port(&usual), "the probe of the image asks the usual port");
    assert!(config.server.listen.to_string().starts_with("0.0.0.0:"), "others reach it");
    let volume = only(&file, "VOLUME");
    assert!(config.store.url.to_string().contains(&format!("{volume}/")), "{}", config.store.url);
    assert!(longest_stop(&config) < DOCKER_WAITS, "Docker kills it before it has stopped");
}

#[test]
fn the_samples_wait_for_the_drain_and_ask_what_exists() {
    let compose = read("packaging/compose.yaml");
    let config = settings(&variables(compose.lines()));
    assert!(seconds(&compose, "stop_grace_period") > longest_stop(&config));
    assert!(compose.contains(":7780:7780") && compose.contains(":/var/lib/posthaste\""));
    let kubernetes = read("packaging/kubernetes.yaml");
    let config = settings(&variables(kubernetes.lines()));
    let before = kubernetes.split_once("preStop: {sleep: {seconds: ").unwrap().1;
    let before = Duration::from_secs(before.split('}').next().unwrap().parse().unwrap());
    assert!(seconds(&kubernetes, "terminationGracePeriodSeconds") > before + longest_stop(&config));
    let asked = kubernetes.split("path: /").skip(1).map(|rest| rest.split([',', '}']).next().unwrap());
    let mut count = 0;
    for path in asked {
        let path = format!("/{path}");
        let route = document().routes.find(&http::Method::GET, &path);
        assert!(route.is_some_and(|route| !document().routes.all()[route].access.needs_key()), "{path}");
        count += 1;
    }
    assert_eq!(count, 4);
    for text in [compose, kubernetes] {
        assert!(text.contains(&format!("image: posthaste:{}", env!("CARGO_PKG_VERSION"))));
    }
}

#[test]
fn instructions_and_variables_are_read() {
    let file = instructions("# a\nFROM x AS y\nRUN a && \\\n  b\nENV POSTHASTE__A__B=c\n");
    assert_eq!(all(&file, "RUN")[0], "a &&    b");
    assert_eq!(variables(all(&file, "ENV").into_iter()), [("POSTHASTE__A__B".to_owned(), "c".to_owned())]);
    let yaml =
        "  POSTHASTE__A__B: 30s\n  - {name: POSTHASTE__C__D, value: 5s}\n  - name: POSTHASTE__E__F\n  X: y\n";
    let wanted = [("POSTHASTE__A__B", "30s"), ("POSTHASTE__C__D", "5s")];
    assert_eq!(variables(yaml.lines()), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
