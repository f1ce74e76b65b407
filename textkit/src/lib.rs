//! Tokenisers, chat templates and grammars behind a C ABI (include/textkit.h).

mod compat;
mod decoding;
mod error;
mod ffi;
mod gbnf;
mod grammar;
mod lark_text;
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
mod schema;
mod sliced;
mod source;
mod tags;
mod template;
mod tokenizer;
mod vocabulary;
