//! Error texts with everything that differs from one failure to the next taken out.

use std::net::{IpAddr, SocketAddr};

/// How much of a text is looked at, in characters.
const MAX_TEXT: usize = 600;

/// Stands for a number, an id, an address or a host.
const GAP: char = '…';

/// The text without numbers, ids, addresses and hosts, in lower case. Equal patterns mean the same cause.
pub fn pattern(text: &str) -> String {
    // PostgreSQL keeps no NUL, and the pattern of what it keeps is to be the same.
    normalised(message(&text.replace('\0', ""))).to_lowercase()
}

/// The same for people: in its own case, and without the status, which the title has in front.
pub(super) fn readable(text: &str, status: Option<u16>) -> String {
    let message = message(text);
    let repeated = status.and_then(|status| message.strip_prefix(&status.to_string()));
    let rest = repeated.filter(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()));
    normalised(rest.unwrap_or(message)).trim_start_matches([' ', ':', '-', ',']).to_owned()
}

/// What the answer says: without the words in front of it, the title of a page, the message of a JSON object.
fn message(text: &str) -> &str {
    let text = text.char_indices().nth(MAX_TEXT).map_or(text, |(end, _)| &text[..end]);
    let body = answer(text).unwrap_or(text).trim();
    match body.as_bytes().first() {
        Some(b'<') => page_title(body).unwrap_or(body),
        Some(b'{' | b'[') => json_message(body).unwrap_or(body),
        _ => body,
    }
}

/// What follows `answered 503: `, or nothing after `answered 503`.
fn answer(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("answered ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &rest[digits..];
    if digits == 0 || !(rest.is_empty() || rest.starts_with(':')) {
        return None;
    }
    Some(rest.trim_start_matches(':'))
}

fn page_title(page: &str) -> Option<&str> {
    let start = find_ignoring_case(page, "<title>")? + "<title>".len();
    let length = page[start..].find('<').unwrap_or(page.len() - start);
    let title = page[start..start + length].trim();
    (!title.is_empty()).then_some(title)
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    text.as_bytes().windows(wanted.len()).position(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// The message of a JSON object, which may be cut off.
fn json_message(json: &str) -> Option<&str> {
    let keys = ["message", "error_description", "detail", "error", "description", "title", "reason"];
    keys.into_iter().find_map(|key| json_string(json, key)).filter(|message| !message.trim().is_empty())
}

/// The first string under that key, at any depth.
fn json_string<'j>(json: &'j str, key: &str) -> Option<&'j str> {
    let quoted = format!("\"{key}\"");
    json.match_indices(&quoted).find_map(|(at, _)| {
        let rest =
            json[at + quoted.len()..].trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        Some(&rest[..end.unwrap_or(rest.len())])
    })
}

/// Characters that part words. Others, such as `.` and `:`, may be inside of an address.
const fn parts(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | ',' | ';' | '=' | '|' | '\\'
    )
}

fn normalised(text: &str) -> String {
    let mut out = Out::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() || first.is_control() {
            out.space();
            rest = &rest[first.len_utf8()..];
        } else if parts(first) {
            out.text.push(first);
            rest = &rest[first.len_utf8()..];
        } else if let Some(length) = url(rest) {
            out.gap();
            rest = &rest[length..];
        } else {
            let ends = |c: char| c.is_whitespace() || c.is_control() || parts(c);
            let (run, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            add_run(&mut out, run);
            rest = after;
        }
    }
    let says_something = out.text.contains(|c: char| c.is_alphanumeric() || c == GAP);
    if says_something { out.text.trim().to_owned() } else { String::new() }
}

#[derive(Default)]
struct Out {
    text: String,
}

impl Out {
    fn space(&mut self) {
        if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Two gaps beside each other are one.
    fn gap(&mut self) {
        if !self.text.ends_with(GAP) {
            self.text.push(GAP);
        }
    }
}

/// The length of the URL that the text starts with. It may contain `=`, `,` and `;`, which part words elsewhere.
fn url(text: &str) -> Option<usize> {
    let scheme = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'+').count();
    if scheme == 0 || !text[scheme..].starts_with("://") {
        return None;
    }
    let ends = |c: char| {
        c.is_whitespace() || c.is_control() || (parts(c) && !matches!(c, '=' | ',' | ';' | '|' | '\\'))
    };
    let url = &text[..text.find(ends).unwrap_or(text.len())];
    Some(url.trim_end_matches(['.', ':', ',', ';', '!', '?']).len())
}

/// A run without spaces: an address as a whole, or words between `/`, `:` and the like.
fn add_run(out: &mut Out, run: &str) {
    let core = run.trim_end_matches(['.', ':', '!', '?']);
    let end = &run[core.len()..];
    if is_address(core) {
        out.gap();
    } else {
        let mut rest = core;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(rest.find(breaks).unwrap_or(rest.len()));
            add_word(out, word);
            let mut others = after.chars();
            out.text.extend(others.next());
            rest = others.as_str();
        }
    }
    out.text.push_str(end);
}

const fn breaks(c: char) -> bool {
    matches!(c, '/' | ':' | '&' | '?' | '#' | '*' | '!' | '@')
}

/// An e-mail address, an IP address or a host, the last two with or without a port.
fn is_address(text: &str) -> bool {
    let is_email = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    is_email || text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok() || is_host(text)
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let Some((_, last)) = name.rsplit_once('.') else { return false };
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let ends_like_one = last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_lowercase());
    ends_like_one && name.split('.').all(is_label) && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn add_word(out: &mut Out, word: &str) {
    if is_enhanced_code(word) {
        out.text.push_str(word);
    } else if is_address(word) || is_number(word) || is_id(word) {
        out.gap();
    } else {
        let mut digits = false;
        for c in word.chars() {
            if c.is_ascii_digit() {
                digits = true;
                continue;
            }
            if std::mem::take(&mut digits) {
                out.gap();
            }
            out.text.push(c);
        }
        if digits {
            out.gap();
        }
    }
}

/// The enhanced status code of an SMTP answer, such as 5.1.1. It names the cause.
fn is_enhanced_code(word: &str) -> bool {
    let numbers: Vec<&str> = word.split('.').collect();
    let [class, subject, detail] = numbers[..] else { return false };
    let is_short =
        |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(class, "2" | "4" | "5") && is_short(subject) && is_short(detail)
}

/// A number with its sign, unit or punctuation, a date or a time.
fn is_number(word: &str) -> bool {
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    let starts = word.trim_start_matches(['-', '+', '~', '$']).starts_with(|c: char| c.is_ascii_digit());
    let is_date = || word.bytes().all(|byte| byte.is_ascii_digit() || b"TZ:+-.".contains(&byte));
    starts && (letters <= 2 || is_date()) && word.is_ascii()
}

/// A word that was made by a machine: hexadecimal, or letters and digits in turns, or letters of both cases in turns.
fn is_id(word: &str) -> bool {
    if !word.is_ascii() {
        return false;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = |part: &str| part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let changes = word.as_bytes().windows(2);
    let to_digit =
        changes.clone().filter(|pair| !pair[0].is_ascii_digit() && pair[1].is_ascii_digit()).count();
    let to_upper =
        changes.filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()).count();
    (digits > 0 && word.split(['-', '_', '.']).any(is_hex))
        || (to_digit >= 2 && word.len() >= 6)
        || (digits > 0 && word.len() >= 20)
        || (word.len() >= 16 && to_upper * 4 >= word.len())
}
