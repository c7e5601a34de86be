//! Pages that walk through something: their commands are run in their order, as a shell runs them, and say what the page prints.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use posthaste_core::time::Timestamp;

use super::served::{KEY, Scene};
use super::{Ended, finish};

/// The sink of `posthaste dev`.
const SINK: &str = "127.0.0.1:7790";
/// Commands that only look, so that they can be repeated until what was started has happened.
const LOOKS: [&str; 6] = [
    "posthaste notifications list",
    "posthaste notifications show",
    "posthaste retry-operations list",
    "posthaste stats",
    "posthaste destinations list",
    "posthaste destinations show",
];
const MOST_LOOKS: usize = 300;

/// The commands of a block, and what the page prints after it.
pub(super) struct Example {
    pub(super) commands: &'static str,
    printed: &'static str,
}

pub(super) fn examples(page: &'static str) -> Vec<Example> {
    let mut found: Vec<Example> = vec![];
    // Blocks are what stands between fences, so every second part is one.
    for block in page.split("```").skip(1).step_by(2) {
        match block.split_once('\n') {
            Some(("sh", commands)) => found.push(Example { commands, printed: "" }),
            Some(("text", printed)) => found.last_mut().unwrap().printed = printed,
            other => panic!("a block of another kind: {other:?}"),
        }
    }
    found
}

/// The ids and addresses of the page, and what they are in this run.
pub(super) struct Names(HashMap<String, String>);

impl Names {
    pub(super) fn of(scene: &Scene) -> Self {
        Self(HashMap::from([(SINK.to_owned(), scene.sink.address().to_string())]))
    }

    fn put_into(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (printed, real)| text.replace(printed, real))
    }

    /// Whether a line says what the page prints. The page may leave out the columns at its end.
    fn fit(&mut self, printed: &str, real: &str) -> bool {
        let (printed, real): (Vec<&str>, Vec<&str>) =
            (printed.split_whitespace().collect(), real.split_whitespace().collect());
        let mut learned = vec![];
        let fits = printed.len() <= real.len()
            && printed.iter().zip(&real).all(|(printed, real)| {
                let known = self.0.get(*printed);
                if let (None, Some(kind)) = (known, kind_of_id(printed)) {
                    learned.push(((*printed).to_owned(), (*real).to_owned()));
                    return kind_of_id(real) == Some(kind);
                }
                known.map_or(*printed, String::as_str) == *real || is_progress_or_time(printed, real)
            });
        if fits {
            self.0.extend(learned);
        }
        fits
    }
}

fn kind_of_id(text: &str) -> Option<&str> {
    let (kind, rest) = text.split_once('_')?;
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (["ntf", "dl", "op", "grp", "dst"].contains(&kind) && is_plain && rest.len() == 26).then_some(kind)
}

/// Two times, or two stages of something that is not complete: the moment of a look decides how far it is.
fn is_progress_or_time(printed: &str, real: &str) -> bool {
    let is_bar = |text: &str| text.starts_with('[') && text.ends_with(']') && text.contains('.');
    let part = |text: &str| {
        let (done, all) = text.strip_suffix(',')?.split_once('/')?;
        Some((done.parse::<u32>().ok()?, all.parse::<u32>().ok()?))
    };
    let is_time = |text: &str| text.parse::<Timestamp>().is_ok();
    match (part(printed), part(real)) {
        (Some((done, all)), Some((_, really))) => done < all && all == really,
        _ => is_bar(printed) && is_bar(real) || is_time(printed) && is_time(real),
    }
}

/// Runs commands as they stand on the page, but for names.
async fn shell(scene: &Scene, directory: &Path, commands: &str) -> Ended {
    let program = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = tokio::process::Command::new("sh");
    command.args(["-ec", commands]).current_dir(directory).env("PATH", path).kill_on_drop(true);
    command.env("POSTHASTE_URL", format!("http://{}", scene.server.address)).env("POSTHASTE_KEY", KEY);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(command, "").await
}

/// Runs the commands again until they say what the page prints: what they started may take a moment.
pub(super) async fn check(scene: &Scene, directory: &Path, names: &mut Names, example: &Example) {
    let commands = names.put_into(example.commands);
    let printed = example.printed.replace(SINK, &scene.sink.address().to_string());
    let is_look = LOOKS.iter().any(|command| commands.contains(command));
    let mut looks = 0;
    loop {
        let ended = shell(scene, directory, &commands).await;
        assert_eq!(ended.code, Some(0), "{commands}{ended:?}");
        let mut lines = ended.out.lines();
        let missing = printed.lines().find(|wanted| !lines.any(|line| names.fit(wanted, line)));
        let Some(missing) = missing else { return };
        looks += 1;
        assert!(is_look && looks < MOST_LOOKS, "{commands}does not print `{missing}` but:\n{}", ended.out);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_line_that_says_something_else_is_found() {
    let (one, other) = ("op_01m7rbqmkwf73b5sse9nz1dacz", "op_01m7rbqmkwf73b5sse9nz1daca");
    let mut names = Names(HashMap::new());
    assert!(names.fit(one, other), "the id has a new name");
    assert!(
        names.fit(&format!("2026-01-01T00:00:00Z {one} 3"), &format!("2026-01-02T00:00:00Z {other} 3 done"))
    );
    for (printed, real) in [
        (one, one),
        ("op_01m7rbqmkwf73b5sse9nz1dacc", "dl_01m7rbqmkwf73b5sse9nz1daca"),
        ("in dead letter 13", "in dead letter 12"),
        ("a b", "a"),
        ("completed [####] 3/3, 3 staged", "completed [####] 2/3, 3 staged"),
        ("paused [##..] 1/3, 3 staged", "paused [##..] 1/4, 3 staged"),
        ("paused [##..] 1/3, 3 staged", "paused [####] 3/3, 3 staged"),
        ("paused [##..] 1/3, 3 staged", "cancelled [##..] 1/3, 3 staged"),
    ] {
        assert!(!names.fit(printed, real), "{printed} {real}");
    }
    assert!(names.fit("paused [##..] 1/3, 3 staged", "paused [#...] 0/3, 3 staged"));
}
