//! Images on their way to a model: bytes in, patches out.
//!
//! Everything here is a pure function of its arguments: no file is read, nothing is fetched, and no tensor is known.
//! Images, data URLs and configs come from strangers; whatever they hold, the worst result is an error value, and
//! memory is bounded by [`ImageLimits`] and [`MAX_PATCHES`].
#![forbid(unsafe_code)]

mod data_url;
mod decode;
mod error;
mod preprocess;

pub use data_url::{from_base64, from_data_url};
pub use decode::{ImageLimits, Rgb, decode, size};
pub use error::ImageError;
pub use preprocess::{MAX_PATCHES, Patches, Preprocessor};
