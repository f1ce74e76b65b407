//! Template code runs on a thread of its own, with a deep stack, a memory budget and a deadline.
//!
//! Fuel bounds the steps of a template, not what one step may cost: a string can double in each. The
//! engine cannot be interrupted and an allocation that fails ends the process, so a thread that goes
//! over its budget, or on after its deadline, stops for ever in the allocator: the caller gets an
//! error, the process lives on, and the template is not run again (see Template). What the stopped
//! thread holds, at most its budget, is the price of such a template.

use crate::error::{Error, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const STACK_BYTES: usize = 64 << 20;
const MAX_BYTES: isize = 512 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

/// What became of the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Running,
    TooLate,
    TooMuchMemory,
    Done,
}

type Shared = (Mutex<Fate>, Condvar);

thread_local! {
    /// Bytes this thread may still take; none on threads that are no sandbox.
    static BYTES_LEFT: Cell<Option<isize>> = const { Cell::new(None) };
    static FATE: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

struct Accountant;

#[global_allocator]
static ALLOCATOR: Accountant = Accountant;

unsafe impl GlobalAlloc for Accountant {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        charge(new_size);
        credit(layout.size());
        System.realloc(pointer, layout, new_size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        credit(layout.size());
        System.dealloc(pointer, layout);
    }
}

fn charge(bytes: usize) {
    if let Some(left) = BYTES_LEFT.get() {
        let left = left.saturating_sub_unsigned(bytes);
        BYTES_LEFT.set(Some(left));
        stop_if_over(left < 0);
    }
}

fn credit(bytes: usize) {
    if let Some(left) = BYTES_LEFT.get() {
        BYTES_LEFT.set(Some(left.saturating_add_unsigned(bytes)));
    }
}

/// Nothing here allocates: locks and condition variables are futexes.
fn stop_if_over(is_over: bool) {
    let shared = FATE.get();
    if shared.is_null() {
        return;
    }
    // SAFETY: `run` keeps the pair alive for as long as this thread has not returned.
    let (fate, changed) = unsafe { &*shared };
    let Ok(mut fate) = fate.lock() else { return };
    if is_over && *fate == Fate::Running {
        *fate = Fate::TooMuchMemory;
        changed.notify_all();
    }
    let must_stop = matches!(*fate, Fate::TooMuchMemory | Fate::TooLate);
    drop(fate);
    while must_stop {
        std::thread::park();
    }
}

/// Why a thread was stopped; the work must not be tried again.
pub struct Stopped(pub Error);

pub fn run<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> std::result::Result<Result<T>, Stopped> {
    let shared: Arc<Shared> = Arc::new((Mutex::new(Fate::Running), Condvar::new()));
    let theirs = Arc::clone(&shared);
    let body = move || {
        FATE.set(Arc::as_ptr(&theirs));
        BYTES_LEFT.set(Some(MAX_BYTES));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        BYTES_LEFT.set(None);
        if let Ok(mut fate) = theirs.0.lock() {
            *fate = Fate::Done;
        }
        theirs.1.notify_all();
        outcome
    };
    let thread = match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body) {
        Ok(thread) => thread,
        Err(error) => {
            return Ok(Err(Error::internal(format!("{what} could not get a thread: {error}"))))
        }
    };
    let (fate, changed) = &*shared;
    let Ok(waiting) = fate.lock() else {
        return Ok(Err(Error::internal(format!("{what} broke its lock"))));
    };
    let waited = changed.wait_timeout_while(waiting, DEADLINE, |fate| *fate == Fate::Running);
    let reason = match waited {
        Ok((mut fate, _)) => {
            if *fate == Fate::Running {
                *fate = Fate::TooLate;
            }
            match *fate {
                Fate::TooLate => format!("ran for more than {} seconds", DEADLINE.as_secs()),
                Fate::TooMuchMemory => format!("took more than {MAX_BYTES} bytes of memory"),
                Fate::Running | Fate::Done => String::new(),
            }
        }
        Err(_) => "broke its lock".into(),
    };
    if !reason.is_empty() {
        return Err(Stopped(Error::invalid(format!("{what} {reason} and was stopped"))));
    }
    match thread.join() {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(payload)) | Err(payload) => std::panic::resume_unwind(payload),
    }
}
