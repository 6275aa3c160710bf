//! `cust` links and runs against this crate alone: its first call reports that there is no driver.

#![cfg(feature = "cust")]

use halfbyte_cuda_driver as _;

#[test]
fn cust_reports_the_missing_driver() {
    match cust::quick_init() {
        Ok(_) => println!("this machine has a driver and a GPU"),
        Err(e) => {
            // `cust` prints with the driver's own function, and panics if that fails.
            let text = e.to_string();
            println!("cust says: {text}");
            if halfbyte_cuda_driver::loaded().is_none() {
                assert!(text.contains("no CUDA driver"), "{text}");
            }
        }
    }
}

#[test]
fn a_jump_through_an_empty_slot_returns_the_stub_status() {
    let mut graph = std::ptr::null_mut();
    if halfbyte_cuda_driver::Driver::load().is_ok() {
        println!("skipped: this machine has a driver");
        return;
    }
    // SAFETY: `graph` is writable.
    let status = unsafe { cust::sys::cuGraphCreate(&raw mut graph, 0) };
    assert_eq!(status, cust::sys::cudaError_enum::CUDA_ERROR_STUB_LIBRARY);
    assert!(graph.is_null());
}
