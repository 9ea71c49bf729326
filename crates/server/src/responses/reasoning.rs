//! The text of thinking inside `encrypted_content`, so that it comes back from clients that keep nothing else.
//!
//! Nothing is secret: the summary beside it says the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Says whose it is, and in which version of this form.
const TAG: &str = "kapitsa1.";

pub(super) fn seal(text: &str) -> String {
    format!("{TAG}{}", STANDARD.encode(text))
}

/// The text, unless the value is foreign or damaged.
pub(super) fn unseal(sealed: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(sealed.strip_prefix(TAG)?).ok()?).ok()
}
