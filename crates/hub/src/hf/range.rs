//! The headers that say which part of a file an answer holds, and which file it is.

use crate::hash::is_hex;

/// What `Content-Range: bytes FIRST-LAST/TOTAL` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// None if the server does not know it (`*`).
    pub(crate) total: Option<u64>,
}

impl ContentRange {
    /// None if it is no range, or one that cannot be.
    pub(crate) fn parse(text: &str) -> Option<ContentRange> {
        let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let total = if total.trim() == "*" { None } else { Some(number(total)?) };
        (first <= last && total.is_none_or(|total| last < total)).then_some(ContentRange { first, last, total })
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    // `parse` takes a sign as well.
    if text.bytes().all(|c| c.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The hash in an `ETag` of the hub: hexadecimal digits in quotes. Storage servers have other tags, which say nothing.
pub(crate) fn etag_hash(text: &str) -> Option<String> {
    let tag = text.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    (is_hex(tag, 64) || is_hex(tag, 40)).then(|| tag.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_and_what_is_none() {
        let of = ContentRange::parse;
        assert_eq!(of("bytes 2-5/10"), Some(ContentRange { first: 2, last: 5, total: Some(10) }));
        assert_eq!(of(" bytes  0-0/* "), Some(ContentRange { first: 0, last: 0, total: None }));
        for text in [
            "",
            "bytes",
            "bytes 2-5",
            "bytes 5-2/10",
            "bytes 2-10/10",
            "bytes -5/10",
            "bytes 2-/10",
            "bytes */10",
            "items 2-5/10",
            "bytes +2-5/10",
            "bytes 2-5/-1",
            "bytes 2-5/99999999999999999999",
            "bytes 2-5/",
            "2-5/10",
            "bytes 0x2-5/10",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn only_hashes_count_as_tags() {
        let hash = "a1".repeat(32);
        assert_eq!(etag_hash(&format!("\"{hash}\"")), Some(hash.clone()));
        assert_eq!(etag_hash(&format!("W/\"{}\"", &hash[..40])), Some(hash[..40].to_owned()));
        assert_eq!(etag_hash("\"d41d8cd98f00b204e9800998ecf8427e-12\""), None);
        assert_eq!(etag_hash(""), None);
    }

    proptest! {
        #[test]
        fn a_range_that_is_taken_makes_sense(text in r"(bytes)? ?[0-9+*]{0,21}-?[0-9]{0,21}/?[0-9*]{0,21}|\PC{0,30}") {
            if let Some(range) = ContentRange::parse(&text) {
                prop_assert!(range.first <= range.last && range.total.is_none_or(|total| range.last < total));
            }
            let _ = etag_hash(&text);
        }

        #[test]
        fn a_written_range_is_read_back(first in 0u64..1 << 50, more in 0u64..1 << 50, rest in 1u64..1 << 50) {
            let (last, total) = (first + more, first + more + rest);
            let range = ContentRange { first, last, total: Some(total) };
            prop_assert_eq!(ContentRange::parse(&format!("bytes {first}-{last}/{total}")), Some(range));
        }
    }
}
