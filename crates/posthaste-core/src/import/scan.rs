//! Turns S2's `ExpireFailedJobsScanAt` into a cron expression.

const EXPECTED: &str = "is neither a time such as 05:00, a weekday, nor never, disabled or n/a";

/// The cron expression for a time of day, a weekday, or both; `None` if the scan is off.
pub fn cron(text: &str) -> Result<Option<String>, String> {
    let lower = text.trim().to_ascii_lowercase();
    if matches!(lower.as_str(), "never" | "disabled" | "n/a") {
        return Ok(None);
    }
    let words: Vec<&str> = lower.split_whitespace().collect();
    let found = match words.as_slice() {
        [one] => time(one)
            .map(|(hour, minute)| format!("{minute} {hour} * * *"))
            .or_else(|| weekday(one).map(|day| format!("0 0 * * {day}"))),
        [day, at] => {
            weekday(day).zip(time(at)).map(|(day, (hour, minute))| format!("{minute} {hour} * * {day}"))
        }
        _ => None,
    };
    let shown: String = text.chars().take(64).collect();
    found.map(Some).ok_or_else(|| format!("`{shown}` {EXPECTED}"))
}

/// `hh:mm`, or `hh:mm:00`, because cron has no seconds.
fn time(text: &str) -> Option<(u8, u8)> {
    let (hour, rest) = text.split_once(':')?;
    let minute = match rest.split_once(':') {
        Some((minute, "00")) => minute,
        Some(_) => return None,
        None => rest,
    };
    Some((digits(hour, 24)?, digits(minute, 60)?))
}

fn digits(text: &str, below: u8) -> Option<u8> {
    let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten().filter(|number| *number < below)
}

/// The cron number of a weekday, from its English name or the first three letters.
fn weekday(text: &str) -> Option<usize> {
    let days = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    days.iter().position(|day| *day == text || day[..3] == *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_weekdays_become_cron_and_words_for_never_switch_it_off() {
        let table = [
            ("05:00", Some("0 5 * * *")),
            ("23:59:00", Some("59 23 * * *")),
            ("Monday", Some("0 0 * * 1")),
            ("sun", Some("0 0 * * 0")),
            ("Saturday 05:30", Some("30 5 * * 6")),
            ("never", None),
            ("Disabled", None),
            (" N/A ", None),
        ];
        for (text, expected) in table {
            assert_eq!(cron(text).unwrap().as_deref(), expected, "{text}");
        }
        for text in
            ["", "24:00", "05:60", "5", "05:00:30", "someday", "05:00 Monday", "+5:00", "mo", "05:00 * *"]
        {
            assert!(cron(text).unwrap_err().contains("neither a time"), "{text}");
        }
    }
}
