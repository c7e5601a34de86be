//! Suggestions for misspelled names.

/// The most similar candidate, if it is similar enough.
pub(super) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normalize = |text: &str| text.to_lowercase().replace('-', "_");
    let given: Vec<char> = normalize(given).chars().take(64).collect();
    let scored = candidates.into_iter().map(|candidate| {
        let letters: Vec<char> = normalize(candidate).chars().collect();
        (distance(&given, &letters), letters.len(), candidate)
    });
    let (distance, length, candidate) = scored.min_by_key(|(distance, _, _)| *distance)?;
    (distance <= (length / 3).max(1)).then_some(candidate)
}

/// The edit distance: letters added, removed, changed, or swapped with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
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
        for (given, letters) in table {
            assert_eq!(nearest(given, keys), letters, "{given}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn swapped_neighbours_are_one_slip() {
        let count = |from: &str, to: &str| {
            distance(&from.chars().collect::<Vec<_>>(), &to.chars().collect::<Vec<_>>())
        };
        assert_eq!(count("lisetn", "listen"), 1);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("", "abc"), 3);
    }
}
