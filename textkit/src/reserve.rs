//! Memory set aside, so that a failed allocation is an error of one call and not the end.
//!
//! Rust ends the process when an allocation fails. Here the first failure gives the reserve back to
//! the system and tries again; calls that work in slices ask `is_low` between them and end with an
//! error. `refill` takes the reserve again when memory is there.

use crate::error::{Error, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// More than all calls together take in one slice. It is never written to, so it costs addresses only.
const RESERVE_BYTES: usize = 64 << 20;

static RESERVE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static IS_LOW: AtomicBool = AtomicBool::new(false);

fn layout(num_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(num_bytes, 16).ok()
}

/// What `allocate` gives, tried again with the reserve released if it gives nothing.
pub fn or_from_reserve(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let pointer = allocate();
    if !pointer.is_null() {
        return pointer;
    }
    IS_LOW.store(true, Ordering::Relaxed);
    let reserve = RESERVE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if let (false, Some(layout)) = (reserve.is_null(), layout(RESERVE_BYTES)) {
        // SAFETY: whoever takes the pointer out owns it; `refill` made it with this layout.
        unsafe { System.dealloc(reserve, layout) };
    }
    allocate()
}

/// Takes the reserve if it is not there. An error if memory is too short for it.
pub fn refill() -> Result<()> {
    if RESERVE.load(Ordering::Acquire).is_null() {
        let reserve = probe(RESERVE_BYTES)?;
        let old = RESERVE.swap(reserve, Ordering::AcqRel);
        release(old, RESERVE_BYTES);
    }
    IS_LOW.store(false, Ordering::Relaxed);
    Ok(())
}

/// An error if so much memory is not to be had now.
pub fn check(num_bytes: usize) -> Result<()> {
    release(probe(num_bytes)?, num_bytes);
    Ok(())
}

pub fn check_low() -> Result<()> {
    match IS_LOW.load(Ordering::Relaxed) {
        true => Err(too_little(RESERVE_BYTES)),
        false => Ok(()),
    }
}

fn probe(num_bytes: usize) -> Result<*mut u8> {
    // SAFETY: the size is not zero.
    let pointer =
        layout(num_bytes.max(1)).map_or(std::ptr::null_mut(), |l| unsafe { System.alloc(l) });
    match pointer.is_null() {
        true => Err(too_little(num_bytes)),
        false => Ok(pointer),
    }
}

fn release(pointer: *mut u8, num_bytes: usize) {
    if let (false, Some(layout)) = (pointer.is_null(), layout(num_bytes.max(1))) {
        // SAFETY: `probe` made it with this layout.
        unsafe { System.dealloc(pointer, layout) };
    }
}

fn too_little(num_bytes: usize) -> Error {
    Error::exhausted(format!(
        "there is not enough memory for this text now, {} MiB are needed",
        num_bytes >> 20
    ))
}
