//! Helpers that tests of several crates share: fixtures, tiny models, random data.
#![forbid(unsafe_code)]

pub mod random;
