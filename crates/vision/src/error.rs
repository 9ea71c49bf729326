//! Everything that can go wrong in this crate, as values whose text a person can act on.

/// An image that cannot be used, or a model's settings for images that are out of range.
///
/// Messages are lower case without a full stop, on one line, and say what to do. Text from outside is quoted in
/// shortened form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The image was not sent along.
    #[error(
        "image address `{}` cannot be used: Kapitsa never fetches images; send it as data:image/png;base64,...",
        shown(address)
    )]
    Address {
        /// What was given in place of a data URL with base64.
        address: String,
    },
    /// The text of an image does not decode.
    #[error("image is not valid base64: {reason}; encode its bytes once, with the standard alphabet")]
    Base64 {
        /// What is wrong, with the offset in characters, white space not counted.
        reason: String,
    },
    /// Too many encoded bytes.
    #[error("image has {found} bytes, at most {limit} are accepted; compress it or scale it down")]
    Bytes {
        /// Size of the image as sent, in bytes.
        found: usize,
        /// The largest size accepted.
        limit: usize,
    },
    /// Too many pixels, by what the image says of itself. Nothing was decoded.
    #[error(
        "image is {width} x {height} pixels, at most {max_side} a side and {max_pixels} in all are accepted; \
         scale it down"
    )]
    Pixels {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
        /// Largest width and height accepted.
        max_side: u32,
        /// Largest product of both accepted.
        max_pixels: u64,
    },
    /// Bytes of no known format.
    #[error("image format is not known; send PNG, JPEG, WebP, GIF or BMP")]
    Format,
    /// A damaged image, or one that uses what its decoder does not support.
    #[error("{format} image cannot be decoded: {}; save it again as a plain PNG", shown(reason))]
    Damaged {
        /// Name of the format.
        format: &'static str,
        /// The decoder's complaint.
        reason: String,
    },
    /// One side is more than 200 times the other, or there is no pixel.
    #[error("image is {width} x {height} pixels, expected a longer side of at most 200 times the shorter; crop it")]
    AspectRatio {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
    },
    /// More patches than one image may take, which limits of the model's config near the largest lead to.
    #[error("image of {width} x {height} pixels makes {patches} patches, at most {limit} are accepted; scale it down")]
    Patches {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
        /// Patches before merging.
        patches: usize,
        /// [`MAX_PATCHES`](crate::MAX_PATCHES).
        limit: usize,
    },
    /// A value of the model's vision or preprocessor config that is out of range.
    #[error("image settings of the model: `{key}` is {}, expected {expected}", shown(found))]
    Config {
        /// Place of the value, such as `size/shortest_edge`.
        key: &'static str,
        /// The value as JSON.
        found: String,
        /// What would do.
        expected: String,
    },
}

/// A piece of outside text for a message: on one line, at most 80 characters.
fn shown(text: &str) -> String {
    const MAX: usize = 80;
    let mut out: String = text.chars().take(MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}
