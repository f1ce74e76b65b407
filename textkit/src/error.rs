//! Why something could not be done: a status of the C ABI and one sentence.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    Ok = 0,
    Invalid = 1,
    Unsupported = 2,
    Corrupt = 3,
    Internal = 4,
    Exhausted = 5,
    TooLong = 6,
    Stopped = 7,
}

#[derive(Debug)]
pub struct Error {
    pub status: Status,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: Status::Invalid, message: message.into() }
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { status: Status::Unsupported, message: message.into() }
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self { status: Status::Corrupt, message: message.into() }
    }

    pub fn exhausted(message: impl Into<String>) -> Self {
        Self { status: Status::Exhausted, message: message.into() }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self { status: Status::Internal, message: message.into() }
    }

    pub fn map_text(self, change: impl FnOnce(&str) -> String) -> Self {
        Self { message: change(&self.message), ..self }
    }
}
