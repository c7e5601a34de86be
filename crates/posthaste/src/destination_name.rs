//! How people name a destination: a pasted URL is read as a send reads it.

use posthaste_core::destination::{BadName, DestinationName};
use posthaste_wire::guard::Target;

/// Reads a URL, the id of a subscription or the name of a provider.
pub(crate) fn parse(text: &str) -> Result<DestinationName, BadName> {
    // A URL that no send would take, such as one with a password, still has an origin.
    let target = Target::parse(text.trim());
    DestinationName::parse(target.as_ref().map_or(text, |target| &target.destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_the_destination_of_its_sends() {
        for (text, name) in [
            ("https://Bücher.example/in", "https://xn--bcher-kva.example:443"),
            ("http://127.1:8080/", "http://127.0.0.1:8080"),
            ("https://me:secret@a.example/x", "https://a.example:443"),
            ("mail-eu", "mail-eu"),
        ] {
            assert_eq!(&*parse(text).unwrap().name, name, "{text}");
        }
        assert!(parse("gopher://a.example").is_err());
    }
}
