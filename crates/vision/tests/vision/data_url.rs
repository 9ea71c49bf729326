//! Images inside of texts.

use kapitsa_vision::{ImageError, ImageLimits, from_base64, from_data_url};

const LIMITS: ImageLimits = ImageLimits { max_bytes: 6, max_side: 100, max_pixels: 100 };

#[test]
fn data_urls_hold_bytes() {
    for url in [
        "data:image/png;base64,aGVsbG8=",
        "data:image/png;base64,aGVsbG8",
        "data:image/png;base64,aGVsbG9",
        "data:;base64,aGVsbG8=",
        " DATA:image/svg+xml;charset=utf-8;Base64, aGVs\r\n bG8= \n",
    ] {
        assert_eq!(from_data_url(url, &LIMITS).unwrap(), b"hello", "{url}");
    }
    assert_eq!(from_base64("", &LIMITS).unwrap(), b"");
}

#[test]
fn nothing_is_fetched_and_the_error_says_what_to_send() {
    for url in
        ["http://a.b/c.png", "HTTPS://a.b/c,d;base64,aGk=", "file:///etc/passwd", "data:text/plain,hi", "aGk=", ""]
    {
        let error = from_data_url(url, &LIMITS).unwrap_err();
        assert!(matches!(error, ImageError::Address { .. }), "{url}: {error}");
    }
    let error = from_data_url(&format!("https://a.b/\n{}", "c".repeat(1000)), &LIMITS).unwrap_err().to_string();
    let expected = "cannot be used: Kapitsa never fetches images; send it as data:image/png;base64,...";
    assert!(error.contains("`https://a.b/ ccc"), "{error}");
    assert!(error.ends_with(expected) && error.len() < 250, "{error}");
}

#[test]
fn what_is_no_base64_or_too_long_is_refused() {
    let error = from_base64("aGVs!G8=", &LIMITS).unwrap_err().to_string();
    assert_eq!(
        error,
        "image is not valid base64: invalid symbol 33, offset 4; encode its bytes once, with the standard alphabet"
    );
    for text in ["a", "a===", "aGVs=bG8", "aG%3D", "日本"] {
        assert!(matches!(from_base64(text, &LIMITS), Err(ImageError::Base64 { .. })), "{text}");
    }
    assert_eq!(from_base64("aaaaaaaa", &LIMITS).unwrap().len(), 6);
    for text in ["a\naaa aaaa aa==", "aaaaaaaaaaaa"] {
        let error = from_base64(text, &LIMITS);
        assert!(matches!(error, Err(ImageError::Bytes { limit: 6, .. })), "{text}: {error:?}");
    }
}
