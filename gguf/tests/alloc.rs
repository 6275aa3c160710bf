//! Memory stays proportional to the file, whatever the file claims.

#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use halfbyte_gguf::Gguf;

struct Counting;

thread_local! {
    /// Bytes this thread has asked for. Per thread, so that the test harness
    /// does not count; `const` and without a destructor, so that counting does
    /// not allocate.
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system allocator unchanged, which
// keeps the trait's contract; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTED.with(|n| n.set(n.get().saturating_add(layout.size())));
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes requested while opening `bytes`, which must fail.
fn requested(bytes: Vec<u8>) -> usize {
    let before = REQUESTED.get();
    let result = Gguf::from_vec(bytes);
    let requested = REQUESTED.get() - before;
    assert!(result.is_err());
    requested
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_metadata.to_le_bytes());
    bytes
}

#[test]
fn the_counter_counts() {
    let before = REQUESTED.get();
    drop(vec![0_u8; 12345]);
    assert!(REQUESTED.get() - before >= 12345);
}

#[test]
fn counts_allocate_nothing_until_checked() {
    for n in [1, 100, 65536, 65537, 1 << 32, 1 << 60, u64::MAX] {
        for bytes in [header(n, 0), header(0, n), header(n, n)] {
            assert_eq!(bytes.len(), 24);
            let got = requested(bytes);
            assert!(got < 4096, "count {n}: {got} bytes");
        }
    }
}

#[test]
fn lengths_allocate_nothing_until_checked() {
    for n in [1, 1000, 1 << 24, 1 << 32, 1 << 60, u64::MAX] {
        // Every element type, and a plain string.
        for element in (0..13).map(Some).chain([None]) {
            let mut bytes = header(0, 1);
            bytes.extend(1_u64.to_le_bytes());
            bytes.push(b'k');
            bytes.extend(element.map_or(8_u32, |_| 9).to_le_bytes());
            bytes.extend(element.map(u32::to_le_bytes).into_iter().flatten());
            bytes.extend(n.to_le_bytes());
            let got = requested(bytes);
            assert!(got < 4096, "element type {element:?}, length {n}: {got} bytes");
        }
    }
}
