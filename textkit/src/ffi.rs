//! The extern functions: argument views in, handles and owned buffers out, no panic across.

use crate::error::{Error, Result, Status};
use crate::grammar::{Grammar, Grammars, Kind, Matcher, Word};
use crate::limits::Limits;
use crate::reserve;
use crate::template::Template;
use crate::tokenizer::Tokenizer;
use crate::vocabulary::Vocabulary;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    fn of(text: &[u8]) -> Self {
        Self { data: text.as_ptr(), size: text.len() }
    }

    /// The bytes behind the view; an empty view may have a null pointer.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()).map_err(|error| {
            Error::invalid(format!("{what} is not valid UTF-8 at byte {}", error.valid_up_to()))
        })
    }
}

unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
}

impl<T> Owned<T> {
    fn new(values: Vec<T>) -> Self {
        let boxed = values.into_boxed_slice();
        let size = boxed.len();
        Self { data: Box::into_raw(boxed).cast(), size }
    }

    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)));
        }
    }
}

#[repr(C)]
pub struct RawVocabulary {
    model: View,
    pre: View,
    tokens: *const View,
    num_tokens: usize,
    token_types: *const i32,
    num_token_types: usize,
    scores: *const f32,
    num_scores: usize,
    merges: *const View,
    num_merges: usize,
    bos_id: i32,
    eos_id: i32,
    eot_id: i32,
    eom_id: i32,
    unknown_id: i32,
    padding_id: i32,
    add_bos: i32,
    add_eos: i32,
    add_space_prefix: i32,
}

#[repr(C)]
pub struct Info {
    vocab_size: u32,
    bos_id: i32,
    eos_id: i32,
    adds_bos: u8,
    mark_each_byte: u8,
    first_differs: u8,
    strip_start_blanks: u32,
}

#[repr(C)]
pub struct Token {
    name: View,
    bytes: View,
    first_bytes: View,
    flags: u32,
}

#[repr(C)]
pub struct EncodeLimits {
    max_tokens: i64,
    stopped: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    context: *mut c_void,
    slice_bytes: usize,
    hidden: u32,
    num_found: i64,
}

/// What building a tokenizer takes, measured with room to spare.
const BYTES_PER_FILE_BYTE: usize = 32;
const BYTES_PER_ENTRY: usize = 1024;

const TOKEN_EXISTS: u32 = 1;
const TOKEN_SPECIAL: u32 = 2;

/// Runs `body`, turns an error or a panic into a status and a message.
unsafe fn guarded(error_out: *mut Owned<u8>, body: impl FnOnce() -> Result<()>) -> Status {
    static QUIET: Once = Once::new();
    // A caught panic is reported to the caller; the default hook would also write to standard error.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Error::internal(format!("the text library panicked: {text}")))
    });
    match outcome {
        Ok(()) => Status::Ok,
        Err(error) => {
            if !error_out.is_null() {
                error_out.write(Owned::new(error.message.into_bytes()));
            }
            error.status
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_free_bytes(bytes: Owned<u8>) {
    bytes.free();
}

#[no_mangle]
pub unsafe extern "C" fn tk_free_ids(ids: Owned<u32>) {
    ids.free();
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_from_json(
    json: View,
    config_json: View,
    out: *mut *mut Tokenizer,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        reserve::refill()?;
        reserve::check(json.size.saturating_mul(BYTES_PER_FILE_BYTE))?;
        let tokenizer = Tokenizer::from_json(json.bytes(), config_json.bytes())?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_from_vocabulary(
    raw: *const RawVocabulary,
    out: *mut *mut Tokenizer,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        let raw = &*raw;
        reserve::refill()?;
        reserve::check((raw.num_tokens + raw.num_merges).saturating_mul(BYTES_PER_ENTRY))?;
        let id =
            |value: i32| u32::try_from(value).ok().filter(|id| (*id as usize) < raw.num_tokens);
        let flag = |value: i32| (value >= 0).then_some(value != 0);
        let vocabulary = Vocabulary {
            model: raw.model.text("tokenizer.ggml.model")?,
            pre: raw.pre.text("tokenizer.ggml.pre")?,
            tokens: slice(raw.tokens, raw.num_tokens).iter().map(|view| view.bytes()).collect(),
            token_types: slice(raw.token_types, raw.num_token_types),
            scores: slice(raw.scores, raw.num_scores),
            merges: slice(raw.merges, raw.num_merges).iter().map(|view| view.bytes()).collect(),
            bos_id: id(raw.bos_id),
            eos_id: id(raw.eos_id),
            other_special_ids: [raw.eot_id, raw.eom_id, raw.padding_id]
                .into_iter()
                .filter_map(id)
                .collect(),
            unknown_id: id(raw.unknown_id),
            add_bos: flag(raw.add_bos),
            add_eos: flag(raw.add_eos),
            add_space_prefix: flag(raw.add_space_prefix),
        };
        out.write(Box::into_raw(Box::new(vocabulary.build()?)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_info(tokenizer: *const Tokenizer, out: *mut Info) {
    let tokenizer = &*tokenizer;
    let id = |value: Option<u32>| value.and_then(|id| i32::try_from(id).ok()).unwrap_or(-1);
    let scheme = tokenizer.scheme();
    out.write(Info {
        vocab_size: tokenizer.vocab_size(),
        bos_id: id(tokenizer.bos_id()),
        eos_id: id(tokenizer.eos_id()),
        adds_bos: tokenizer.adds_bos() as u8,
        mark_each_byte: scheme.mark_each_byte as u8,
        first_differs: scheme.first_differs as u8,
        strip_start_blanks: scheme.strip_start_blanks,
    });
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_token(
    tokenizer: *const Tokenizer,
    id: u32,
    out: *mut Token,
) -> i32 {
    let Some(entry) = (*tokenizer).entry(id) else {
        return 0;
    };
    out.write(Token {
        name: View::of(entry.name),
        bytes: View::of(entry.bytes),
        first_bytes: View::of(entry.first_bytes),
        flags: if entry.decodes { TOKEN_EXISTS } else { 0 }
            | if entry.special { TOKEN_SPECIAL } else { 0 },
    });
    1
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_token_to_id(tokenizer: *const Tokenizer, token: View) -> i64 {
    let lookup = || {
        let text = token.text("token").ok()?;
        (*tokenizer).token_to_id(text).map(i64::from)
    };
    catch_unwind(AssertUnwindSafe(lookup)).ok().flatten().unwrap_or(-1)
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_encode(
    tokenizer: *const Tokenizer,
    utf8: View,
    add_special: i32,
    limits: *mut EncodeLimits,
    out: *mut Owned<u32>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        reserve::refill()?;
        let asked = &mut *limits;
        let (stopped, context) = (asked.stopped, asked.context);
        let ask = || stopped.is_some_and(|stopped| stopped(context) != 0);
        let mut limits = Limits::new(usize::try_from(asked.max_tokens).unwrap_or(0), &ask);
        if asked.slice_bytes > 0 {
            limits.slice_bytes = asked.slice_bytes;
        }
        let text = utf8.text("the text to encode")?;
        let outcome = match char::from_u32(asked.hidden).filter(|c| *c != '\0' && text.contains(*c))
        {
            Some(hidden) => (*tokenizer).encode_hidden(text, hidden, &mut limits),
            None => (*tokenizer).encode(text, add_special != 0, &mut limits),
        };
        asked.num_found = i64::try_from(limits.num_found).unwrap_or(i64::MAX);
        let ids = outcome?;
        out.write(Owned::new(ids));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_new(
    source: View,
    special_tokens_json: View,
    plain_json: View,
    out: *mut *mut Template,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        let template = Template::new(
            source.text("the chat template")?,
            special_tokens_json.text("the special tokens")?,
            plain_json.text("the special tokens")?,
        )?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_render(
    template: *const Template,
    options_json: View,
    now: View,
    out: *mut Owned<u8>,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        let text =
            (*template).render(options_json.text("the template options")?, now.text("now")?)?;
        out.write(Owned::new(text.into_bytes()));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammars_new(
    tokens: *const Token,
    num_tokens: usize,
    end_ids: *const u32,
    num_end_ids: usize,
    out: *mut *mut Grammars,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        reserve::refill()?;
        reserve::check(num_tokens.saturating_mul(BYTES_PER_ENTRY))?;
        let words: Vec<Word> = slice(tokens, num_tokens)
            .iter()
            .map(|token| Word {
                bytes: token.bytes.bytes(),
                special: token.flags & TOKEN_SPECIAL != 0,
            })
            .collect();
        let grammars = Grammars::new(&words, slice(end_ids, num_end_ids))?;
        out.write(Box::into_raw(Box::new(grammars)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammars_free(grammars: *mut Grammars) {
    if !grammars.is_null() {
        drop(Box::from_raw(grammars));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_compile(
    grammars: *const Grammars,
    kind: i32,
    text: View,
    out: *mut *mut Grammar,
    num_bytes: *mut usize,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        reserve::refill()?;
        let kind = Kind::from(kind).ok_or_else(|| Error::internal("no such kind of grammar"))?;
        let grammar = (*grammars).compile(kind, text.text("it")?)?;
        num_bytes.write(grammar.num_bytes);
        out.write(Box::into_raw(Box::new(grammar)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_new(
    grammar: *const Grammar,
    out: *mut *mut Matcher,
    error: *mut Owned<u8>,
) -> Status {
    guarded(error, || {
        out.write(Box::into_raw(Box::new((*grammar).matcher())));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

const COMPLETE: u32 = 1;
const FINISHED: u32 = 2;
const FAILED: u32 = 4;

/// What `body` gives; a panic gives what a failed matcher would.
fn quiet<T>(failed: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_state(matcher: *mut Matcher) -> u32 {
    quiet(FAILED, || {
        let state = (*matcher).state();
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        bit(state.complete, COMPLETE) | bit(state.finished, FINISHED) | bit(state.failed, FAILED)
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_mask(matcher: *mut Matcher, words: *mut u64, num_words: usize) {
    let words = std::slice::from_raw_parts_mut(words, num_words);
    if !quiet(false, || {
        (*matcher).mask(words);
        true
    }) {
        words.fill(0);
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_accept(matcher: *mut Matcher, id: u32) -> i32 {
    quiet(0, || i32::from((*matcher).accept(id)))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_rollback(matcher: *mut Matcher, num_tokens: usize) -> i32 {
    quiet(0, || i32::from((*matcher).rollback(num_tokens)))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_forced(
    matcher: *mut Matcher,
    ids: *mut u32,
    most: usize,
) -> usize {
    quiet(0, || (*matcher).forced(std::slice::from_raw_parts_mut(ids, most)))
}
