//! Tokenisers and chat templates behind a C ABI (include/textkit.h).

mod compat;
mod decoding;
mod error;
mod ffi;
mod merges;
mod methods;
mod pre_tokenizers;
mod python;
mod sandbox;
mod source;
mod template;
mod tokenizer;
mod vocabulary;
