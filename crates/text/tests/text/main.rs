//! Tests of the public interface against the reference libraries and against hostile input.

mod fixtures;
mod streaming;
mod templates;
mod tokenizers;
