//! Text from outside, made fit to be shown.

/// Converts bytes to text that can be shown and stored anywhere: invalid UTF-8 and control characters become
/// replacement characters, and the trailing line break is cut off.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    String::from_utf8_lossy(bytes).trim_end().replace(control, "\u{fffd}")
}
