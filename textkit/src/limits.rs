//! What bounds one call: a number of tokens, and a caller who may lose interest.

use crate::error::{Error, Result, Status};
use crate::reserve;

const SLICE_BYTES: usize = 16 << 10;

pub struct Limits<'a> {
    max_tokens: usize,
    stopped: &'a dyn Fn() -> bool,
    /// Tokens that the text has at least, once there are too many.
    pub num_found: usize,
    /// Longer texts are encoded slice by slice.
    pub slice_bytes: usize,
}

impl<'a> Limits<'a> {
    pub fn new(max_tokens: usize, stopped: &'a dyn Fn() -> bool) -> Self {
        Self { max_tokens, stopped, num_found: 0, slice_bytes: SLICE_BYTES }
    }

    /// An error if a text of at least `num_tokens` tokens is too long.
    pub fn check(&mut self, num_tokens: usize) -> Result<()> {
        if num_tokens <= self.max_tokens {
            return Ok(());
        }
        self.num_found = num_tokens;
        Err(Error {
            status: Status::TooLong,
            message: format!(
                "the text has at least {num_tokens} tokens, more than {}",
                self.max_tokens
            ),
        })
    }

    /// An error if the caller has lost interest, or memory is short.
    pub fn check_stopped(&self) -> Result<()> {
        match (self.stopped)() {
            true => Err(Error { status: Status::Stopped, message: "encoding was stopped".into() }),
            false => reserve::check_low(),
        }
    }
}
