//! Images inside of texts: data URLs and base64.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::{ImageError, ImageLimits};

/// Some encoders leave out the padding or set bits behind the last byte: neither changes the bytes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes of an image given as `data:image/png;base64,...`.
///
/// The media type is not looked at: it is often wrong, and [`decode`](crate::decode) goes by the bytes.
///
/// # Errors
/// [`ImageError::Address`] for any other URL, as nothing is ever fetched; else those of [`from_base64`].
pub fn from_data_url(url: &str, limits: &ImageLimits) -> Result<Vec<u8>, ImageError> {
    let data = || {
        let (header, data) = url.trim_start().split_once(',')?;
        let (scheme, parameters) = header.split_once(':')?;
        let encoding = parameters.rsplit_once(';')?.1.trim();
        (scheme.eq_ignore_ascii_case("data") && encoding.eq_ignore_ascii_case("base64")).then_some(data)
    };
    let not_here = || ImageError::Address { address: url.chars().take(100).collect() };
    from_base64(data().ok_or_else(not_here)?, limits)
}

/// The bytes of an image given in base64, with or without padding and white space.
///
/// # Errors
/// [`ImageError::Bytes`] before anything is decoded, [`ImageError::Base64`].
pub fn from_base64(text: &str, limits: &ImageLimits) -> Result<Vec<u8>, ImageError> {
    let symbols = || text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let found = symbols().filter(|byte| *byte != b'=').count() * 3 / 4;
    if found > limits.max_bytes {
        return Err(ImageError::Bytes { found, limit: limits.max_bytes });
    }
    let reason = |error: base64::DecodeError| error.to_string().trim_end_matches('.').to_ascii_lowercase();
    BASE64.decode(symbols().collect::<Vec<u8>>()).map_err(|error| ImageError::Base64 { reason: reason(error) })
}
