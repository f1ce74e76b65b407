//! Tokenisers and chat templates behind a C ABI (include/textkit.h).

mod compat;
mod decoding;
mod error;
mod ffi;
mod limits;
mod long_piece;
mod merges;
mod methods;
mod pattern;
mod plain;
mod pre_tokenizers;
mod python;
mod reserve;
mod sandbox;
mod sliced;
mod source;
mod template;
mod tokenizer;
mod vocabulary;
