//! Rules for pages: decisions and links.

use super::tree::Problem;

const ADR: &str = "docs/adr/";
const ADR_LIST: &str = "docs/adr/README.md";

/// Decisions are called `NNNN-some-words.md`, numbered from 0001 without a gap. The names come sorted.
pub(super) fn adr_numbers(pages: &[String]) -> Vec<Problem> {
    let mut problems = vec![];
    for (index, page) in pages.iter().enumerate() {
        let path = format!("{ADR}{page}");
        let due = index + 1;
        match adr_number(page) {
            None => problems.push(Problem::at(&path, 1, "is not called `NNNN-some-words.md`")),
            Some(number) if number != due => {
                problems.push(Problem::at(
                    &path,
                    1,
                    format!("the number should be {due:04}: no gaps, no twins"),
                ));
            }
            Some(_) => {}
        }
    }
    problems
}

/// Every decision is linked from the list.
pub(super) fn adr_listed(pages: &[String], list: &str) -> Vec<Problem> {
    let linked: Vec<String> = links(list).into_iter().map(|(_, target)| target).collect();
    let missing = pages.iter().filter(|page| !linked.contains(page));
    missing.map(|page| Problem::at(ADR_LIST, 1, format!("does not link to {page}"))).collect()
}

/// Every relative link leads to something in this repository. `holds` answers for a path from its root.
pub(super) fn dead_links(path: &str, text: &str, holds: impl Fn(&str) -> bool) -> Vec<Problem> {
    let mut problems = vec![];
    for (line, target) in links(text) {
        let elsewhere = target.contains("://") || target.starts_with("mailto:") || target.starts_with('#');
        let alive = || resolve(path, &target).is_some_and(|target| holds(&target));
        if !elsewhere && !alive() {
            problems.push(Problem::at(
                path,
                line,
                format!("the link to `{target}` leads nowhere in this repository"),
            ));
        }
    }
    problems
}

fn adr_number(page: &str) -> Option<usize> {
    let (number, words) = page.strip_suffix(".md")?.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !words.is_empty() { number.parse().ok() } else { None }
}

/// The targets of `[..](target)` and `[..]: target` outside of code, with their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = vec![];
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second part between backticks is code.
        let prose: String = line.split('`').step_by(2).collect();
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        found.extend(inline.map(|target| (index + 1, target.to_owned())));
        if let Some((_, target)) = prose.split_once("]: ").filter(|_| prose.starts_with('[')) {
            found.push((index + 1, target.trim().to_owned()));
        }
    }
    found
}

/// The link's path from the root of the repository, or `None` where it leaves it.
fn resolve(page: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn a_decision_with_a_wrong_number_is_found() {
    let names = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(adr_numbers(&[]), []);
    assert_eq!(adr_numbers(&names(&["0001-a.md", "0002-b-c.md"])), []);
    for bad in [&["0002-a.md"][..], &["0001-a.md", "0003-b.md"], &["0001-a.md", "0001-b.md"]] {
        assert_eq!(adr_numbers(&names(bad)).len(), 1, "{bad:?}");
    }
    for bad in ["1-a.md", "0001.md", "0001-.md", "+001-a.md", "0001-a.txt", "notes.md"] {
        assert_eq!(adr_numbers(&names(&[bad])).len(), 1, "{bad}");
    }
}

#[test]
fn a_decision_that_is_not_listed_is_found() {
    let pages = ["0001-a.md".to_owned(), "0002-b.md".to_owned()];
    assert_eq!(adr_listed(&[], "# Decisions\n"), []);
    assert_eq!(adr_listed(&pages, "| [1](0001-a.md) | [2](0002-b.md) |"), []);
    assert_eq!(adr_listed(&pages, "| [1](0001-a.md) | 0002-b.md |").len(), 1);
}

#[test]
fn a_dead_link_is_found_in_its_line() {
    let holds = |path: &str| ["README.md", "docs/a.md", "docs/adr"].contains(&path);
    let fine = "[a](a.md) [b](../README.md#run) [c](./adr/) [d](https://example.com/x.md) [e](#here)\n\
                `[f](gone.md)`\n```\n[g](gone.md)\n```\n[`h`](a.md)\n[i]: a.md\n";
    assert_eq!(dead_links("docs/b.md", fine, holds), []);
    for bad in
        ["[x](gone.md)", "[`x`](gone.md)", "[x](../docs/gone.md#a)", "[x](../../README.md)", "[x]: gone.md"]
    {
        let found = dead_links("docs/b.md", &format!("# Page\n\n{bad}\n"), holds);
        assert_eq!(found.len(), 1, "{bad}");
        assert!(found[0].to_string().starts_with("docs/b.md:3: "), "{}", found[0]);
    }
}
