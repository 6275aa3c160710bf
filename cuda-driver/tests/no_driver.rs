//! On a machine without a GPU every way in gives an error that names what is missing. Where there is a driver these
//! tests check that it answers instead.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_driver::{Driver, DriverVersion, Error, Status, loaded, sys};

#[test]
fn loading_says_what_is_missing_or_loads() {
    match Driver::load() {
        Ok(driver) => {
            println!("this machine has a driver: CUDA {}", driver.version());
            assert!(driver.version() >= DriverVersion::MINIMUM);
            assert!(loaded().is_some());
        }
        Err(e @ Error::LibraryNotFound { .. }) => {
            let text = e.to_string();
            let Error::LibraryNotFound { library, reason } = e else { unreachable!() };
            assert_eq!(loaded(), None);
            assert!(text.contains(library), "{text}");
            // The loader names the file that it missed.
            assert!(reason.contains(library), "{reason}");
            // A failure is no state: the next attempt fails alike, and an emulator could still be installed.
            assert_eq!(Driver::load().unwrap_err().to_string(), text);
        }
        Err(Error::UnsupportedSystem { system }) => assert_eq!(system, std::env::consts::OS),
        Err(e) => {
            println!("this machine has a driver that does not start: {e}");
            assert!(loaded().is_some());
        }
    }
}

#[test]
fn a_call_without_a_driver_returns_the_stub_status() {
    if loaded().is_some() || Driver::load().is_ok() || loaded().is_some() {
        println!("skipped: this machine has a driver");
        return;
    }
    let mut count = -1;
    // SAFETY: `count` is writable.
    let status = unsafe { sys::cuDeviceGetCount(&raw mut count) };
    assert_eq!(Status(status), Status::STUB_LIBRARY);
    assert_eq!(count, -1, "a call that goes nowhere writes nothing");
    // SAFETY: none needed: it takes no pointers.
    assert_eq!(Status(unsafe { sys::cuInit(0) }), Status::STUB_LIBRARY);
    // SAFETY: none needed: it takes no pointers.
    assert_eq!(Status(unsafe { sys::cuCtxSynchronize() }), Status::STUB_LIBRARY);
}

#[test]
fn statuses_have_the_drivers_names() {
    assert_eq!(Status::STUB_LIBRARY.name(), c"CUDA_ERROR_STUB_LIBRARY");
    assert_eq!(Status(700).name(), c"CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(Status(0).name(), c"CUDA_SUCCESS");
    assert_eq!(Status(123_456).name(), c"CUDA_ERROR_UNKNOWN");
    assert_eq!(format!("{:?}", Status(2)), "CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_eq!(Status(2).to_string(), "CUDA_ERROR_OUT_OF_MEMORY (2): not enough memory");
}
