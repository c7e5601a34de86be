//! Where a secret stands: in place, in a variable (`env:NAME`), or in a file (`file:PATH`).

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// In bytes.
const MAX_SECRET: u64 = 64 * 1024;

/// The text that a value stands for. The error follows the name of the value, and names where the secret should be, never what
/// it is.
pub fn secret_text(given: &str) -> Result<String, String> {
    match given.split_once(':') {
        Some((place @ ("env" | "file"), "")) => Err(format!("names nothing after `{place}:`")),
        Some(("env", name)) => std::env::var(name)
            .map_err(|_| format!("names the variable {name}, which is not set, or not text")),
        Some(("file", path)) => {
            let text = read(Path::new(path))?;
            // Editors and `echo` end a file with a line break.
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        _ => Ok(given.to_owned()),
    }
}

/// The file that a value names with `file:PATH`.
pub(super) fn secret_file(given: &str) -> Option<PathBuf> {
    given.strip_prefix("file:").map(PathBuf::from)
}

/// PEM text: in a variable (`env:NAME`), or in the file that the value names, with `file:` before it or without.
pub(super) fn pem(given: &str) -> Result<String, String> {
    // A path is quoted in the error, and a private key must not be.
    if given.contains("-----BEGIN") {
        return Err("holds the PEM text itself: give the path of its file, or env:NAME".to_owned());
    }
    match given.split_once(':') {
        Some(("env", _)) => secret_text(given),
        _ => read(&pem_file(given).unwrap_or_default()),
    }
}

/// The file of a PEM text.
pub(super) fn pem_file(given: &str) -> Option<PathBuf> {
    (!given.starts_with("env:")).then(|| given.strip_prefix("file:").unwrap_or(given).into())
}

fn read(path: &Path) -> Result<String, String> {
    let (mut text, shown) = (String::new(), path.display());
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_SECRET + 1).read_to_string(&mut text));
    match read.map_err(|error| format!("names the file {shown}, which cannot be read: {error}"))? {
        0 => Err(format!("names the file {shown}, which is empty")),
        length if length as u64 > MAX_SECRET => {
            Err(format!("names the file {shown}, which has more than {MAX_SECRET} bytes"))
        }
        _ => Ok(text),
    }
}
