//! Finds what was probably meant.

/// The candidate that is few slips away from what was written, if there is one.
pub(super) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let written: Vec<char> = plain(written).chars().take(64).collect();
    let scored = candidates.into_iter().map(|candidate| {
        let meant: Vec<char> = plain(candidate).chars().collect();
        (slips(&written, &meant), meant.len(), candidate)
    });
    let (slips, length, candidate) = scored.min_by_key(|(slips, _, _)| *slips)?;
    (slips <= (length / 3).max(1)).then_some(candidate)
}

/// How many letters have to be added, left out, changed or swapped with their neighbour.
fn slips(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, wanted) in to.iter().enumerate() {
            let changed = above[column] + usize::from(letter != wanted);
            let mut least = changed.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == to[column - 1] && from[row - 1] == *wanted {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_what_was_meant_and_nonsense_finds_nothing() {
        let keys = ["break_duration", "failure_threshold", "forget_after", "url"];
        let table = [
            ("brake_duration", Some("break_duration")),
            ("break-duration", Some("break_duration")),
            ("breakDuration", Some("break_duration")),
            ("failure_treshold", Some("failure_threshold")),
            ("ulr", Some("url")),
            ("colour", None),
            ("", None),
        ];
        for (written, meant) in table {
            assert_eq!(nearest(written, keys), meant, "{written}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn swapped_neighbours_are_one_slip() {
        let count =
            |from: &str, to: &str| slips(&from.chars().collect::<Vec<_>>(), &to.chars().collect::<Vec<_>>());
        assert_eq!(count("lisetn", "listen"), 1);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("", "abc"), 3);
    }
}
