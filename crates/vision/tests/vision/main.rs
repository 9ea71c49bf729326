//! Tests of the public interface: against the reference, on images that the tests make, and on hostile input.

mod data_url;
mod decode;
mod hostile;
mod preprocess;
