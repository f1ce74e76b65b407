//! Template source as the engine needs it.

/// `{% generation %}` marks what an assistant wrote; rendering ignores it.
pub fn prepare(source: &str) -> String {
    source.to_string()
}
