//! What template code may take: memory and wall time, both enforced by the end of the process.
//!
//! Fuel bounds the steps of a template, not what one step may cost: a string can double in each. The
//! engine cannot be interrupted, and an allocation that fails ends the process. So templates run in a
//! process that does nothing else (src/text/render_process.h), and one that goes over its limits ends
//! that process: the exit code, or the alarm's signal, says which limit it was.
//!
//! In every other process nothing is limited here, but an allocation that fails takes from a reserve
//! first, so that the call that made it can end in an error (crate::reserve).

use crate::reserve;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Exit codes that src/text/render_process.cpp knows.
const EXIT_MEMORY: i32 = 71;
const EXIT_INPUT_MEMORY: i32 = 72;

const INPUT_BYTES: isize = 2 << 30;
const RENDER_BYTES: isize = 256 << 20;
const RENDER_BYTES_PER_INPUT_BYTE: isize = 16;
const SECONDS: i64 = 2;

extern "C" {
    fn _exit(code: i32) -> !;
    fn setitimer(which: i32, new: *const [i64; 4], old: *mut [i64; 4]) -> i32;
}

thread_local! {
    /// Bytes this thread may still take, and the exit code if it takes more.
    static LIMIT: Cell<Option<(isize, i32)>> = const { Cell::new(None) };
    /// Bytes this thread has taken, less those it has given back.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// For differences on one thread: what it holds now.
pub fn held_bytes() -> isize {
    HELD.get()
}

struct Accountant;

#[global_allocator]
static ALLOCATOR: Accountant = Accountant;

unsafe impl GlobalAlloc for Accountant {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size(), 0);
        reserve::or_from_reserve(|| System.alloc(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size(), 0);
        reserve::or_from_reserve(|| System.alloc_zeroed(layout))
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        charge(new_size, layout.size());
        reserve::or_from_reserve(|| System.realloc(pointer, layout, new_size))
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        charge(0, layout.size());
        System.dealloc(pointer, layout);
    }
}

fn charge(taken: usize, given_back: usize) {
    HELD.set(HELD.get().wrapping_add_unsigned(taken).wrapping_sub_unsigned(given_back));
    let Some((left, exit_code)) = LIMIT.get() else { return };
    let left = left.saturating_sub_unsigned(taken);
    if left < 0 {
        // SAFETY: ends the process; nothing of it is needed any more.
        unsafe { _exit(exit_code) }
    }
    LIMIT.set(Some((left.saturating_add_unsigned(given_back), exit_code)));
}

/// Limits of the render process, in force until dropped. Elsewhere templates must not run.
pub struct Limited;

impl Limited {
    /// For bringing a request's values into the form templates get.
    pub fn input() -> Self {
        LIMIT.set(Some((INPUT_BYTES, EXIT_INPUT_MEMORY)));
        Limited
    }

    /// For template code that works on so much input.
    pub fn template(input_bytes: usize) -> Self {
        let scaled = RENDER_BYTES_PER_INPUT_BYTE.saturating_mul(input_bytes as isize);
        LIMIT.set(Some((RENDER_BYTES.saturating_add(scaled), EXIT_MEMORY)));
        alarm(SECONDS);
        Limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        alarm(0);
        LIMIT.set(None);
    }
}

/// SIGALRM, which nobody handles, after so many seconds of wall time; 0: not at all.
fn alarm(seconds: i64) {
    // SAFETY: a timer value is interval and value, each seconds and microseconds.
    unsafe { setitimer(0, &[0, 0, seconds, 0], std::ptr::null_mut()) };
}
