//! The contenders: one way each to run `threads` items and wait for all of them.

use anyhow::{Result, bail};
use rayon::prelude::*;
#[cfg(any(openmp, ggml))]
use std::ffi::{c_int, c_void};
use std::num::NonZero;

/// An item: called once with each number below the number of threads.
pub(crate) type Item<'a> = dyn Fn(usize) + Sync + 'a;

/// Runs one loop.
pub(crate) type Loop<'a> = dyn FnMut(&Item<'_>) + 'a;

/// A way to run a loop: the name on the command line, its name for people, and what its process finds set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// In the order of the table.
pub(crate) const ALL: &[Contender] = &[
    Contender { name: "halfbyte", title: "halfbyte `par_for`", environment: &[] },
    Contender { name: "candle", title: "candle `BarrierPool`", environment: &[] },
    #[cfg(openmp)]
    Contender {
        name: "openmp",
        title: "OpenMP, active waits",
        environment: &[("OMP_WAIT_POLICY", "active")],
    },
    #[cfg(openmp)]
    Contender {
        name: "openmp-passive",
        title: "OpenMP, passive waits",
        environment: &[("OMP_WAIT_POLICY", "passive")],
    },
    #[cfg(ggml)]
    Contender { name: "ggml", title: "ggml's own pool, a graph of one node", environment: &[] },
    Contender { name: "rayon-broadcast-in", title: "rayon `broadcast`, inside", environment: &[] },
    Contender { name: "rayon-broadcast-out", title: "rayon `broadcast`, outside", environment: &[] },
    Contender { name: "rayon-iter-in", title: "rayon `par_iter`, inside", environment: &[] },
    Contender { name: "rayon-iter-out", title: "rayon `par_iter`, outside", environment: &[] },
    Contender { name: "chili", title: "chili `join`", environment: &[] },
    Contender { name: "scope", title: "`std::thread::scope`", environment: &[] },
];

/// Makes the contender of this name with `threads` threads, the caller's included, and lends it to `measure`.
pub(crate) fn with(name: &str, threads: usize, measure: impl FnOnce(&mut Loop<'_>) + Send) -> Result<()> {
    match name {
        "halfbyte" => {
            let pool = halfbyte_threadpool::ThreadPool::new(threads)?;
            measure(&mut |item| pool.par_for(threads, 1, item));
        }
        "candle" => {
            // Its size comes from CANDLE_NUM_THREADS, which the parent has set.
            let pool = candle_core::utils::barrier_pool();
            if pool.n_workers() + 1 != threads {
                bail!("BarrierPool: expected {threads} threads, got {}", pool.n_workers() + 1);
            }
            measure(&mut |item| pool.execute(item));
        }
        #[cfg(openmp)]
        "openmp" | "openmp-passive" => measure(&mut |item| openmp::run(threads, item)),
        #[cfg(ggml)]
        "ggml" => {
            let mut pool = ggml::Pool::new(threads)?;
            measure(&mut |item| pool.run(item));
        }
        "rayon-broadcast-in" => rayon(threads)?.install(|| measure(&mut |item| broadcast(item))),
        "rayon-broadcast-out" => {
            let pool = rayon(threads)?;
            measure(&mut |item| {
                pool.broadcast(|context| item(context.index()));
            });
        }
        "rayon-iter-in" => rayon(threads)?.install(|| measure(&mut |item| par_iter(threads, item))),
        "rayon-iter-out" => {
            let pool = rayon(threads)?;
            measure(&mut |item| pool.install(|| par_iter(threads, item)));
        }
        "chili" => {
            let config = chili::Config { thread_count: NonZero::new(threads), ..chili::Config::default() };
            let pool = chili::ThreadPool::with_config(config);
            let mut scope = pool.scope();
            measure(&mut |item| join(&mut scope, 0, threads, item));
        }
        "scope" => measure(&mut |item| {
            std::thread::scope(|scope| {
                for i in 1..threads {
                    scope.spawn(move || item(i));
                }
                item(0);
            });
        }),
        _ => bail!("no contender is called {name:?}"),
    }
    Ok(())
}

fn rayon(threads: usize) -> Result<rayon::ThreadPool> {
    Ok(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?)
}

fn broadcast(item: &Item<'_>) {
    rayon::broadcast(|context| item(context.index()));
}

fn par_iter(threads: usize, item: &Item<'_>) {
    (0..threads).into_par_iter().with_max_len(1).for_each(item);
}

/// Runs the items from `first` up to `end`, splitting in halves.
fn join(scope: &mut chili::Scope<'_>, first: usize, end: usize, item: &Item<'_>) {
    if end - first == 1 {
        return item(first);
    }
    let middle = first.midpoint(end);
    scope.join(|s| join(s, first, middle, item), |s| join(s, middle, end, item));
}

/// Calls the item of this number: what a loop in C gets for a closure.
#[cfg(any(openmp, ggml))]
extern "C" fn call(context: *const c_void, i: c_int) {
    // SAFETY: the loops below pass a pointer to their `item`, which they lend until the loop has ended.
    let item = unsafe { &*context.cast::<&Item<'_>>() };
    item(i as usize);
}

#[cfg(openmp)]
mod openmp {
    use super::{Item, call};
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn openmp_loop(threads: c_int, item: extern "C" fn(*const c_void, c_int), context: *const c_void);
    }

    pub(super) fn run(threads: usize, item: &Item<'_>) {
        let context: *const &Item<'_> = &item;
        // SAFETY: `call` takes what `context` is, and the loop ends before `item` does.
        unsafe { openmp_loop(threads as c_int, call, context.cast()) }
    }
}

#[cfg(ggml)]
mod ggml {
    use super::{Item, call};
    use anyhow::{Context, Result};
    use std::ffi::{c_int, c_void};
    use std::ptr::NonNull;

    unsafe extern "C" {
        fn ggml_loop_new(threads: c_int) -> *mut c_void;
        fn ggml_loop_run(
            pool: *mut c_void,
            item: extern "C" fn(*const c_void, c_int),
            context: *const c_void,
        ) -> c_int;
        fn ggml_loop_free(pool: *mut c_void);
    }

    pub(super) struct Pool(NonNull<c_void>);

    impl Pool {
        pub(super) fn new(threads: usize) -> Result<Self> {
            // SAFETY: takes a number, and what it returns is checked.
            let pool = unsafe { ggml_loop_new(threads as c_int) };
            Ok(Self(NonNull::new(pool).context("ggml's pool can't be made")?))
        }

        pub(super) fn run(&mut self, item: &Item<'_>) {
            let context: *const &Item<'_> = &item;
            // SAFETY: the pool is alive and borrowed for this call alone; `call` takes what `context` is, and the
            // loop ends before `item` does.
            let status = unsafe { ggml_loop_run(self.0.as_ptr(), call, context.cast()) };
            assert_eq!(status, 0, "ggml computes a graph of one node");
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            // SAFETY: the pool was made by `ggml_loop_new` and is freed once.
            unsafe { ggml_loop_free(self.0.as_ptr()) }
        }
    }
}
