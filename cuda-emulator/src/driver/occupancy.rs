//! How many blocks of a kernel a multiprocessor holds: the arithmetic of NVIDIA's occupancy calculator.

use super::config::Limits;

/// Registers are given to warps in units of this many.
const REGISTER_UNIT: u32 = 256;
/// A multiprocessor's registers are in four parts, one to each scheduler, so warps come in fours.
const PARTS: u32 = 4;
/// Shared memory is given to blocks in units of this many bytes.
const SHARED_UNIT: u32 = 128;

/// Blocks of `threads` threads, `registers` registers a thread and `shared` bytes that fit at once.
pub(super) fn blocks(limits: &Limits, threads: u32, registers: u32, shared: u32) -> u32 {
    if threads == 0 || threads > 1024 {
        return 0;
    }
    let warps = threads.div_ceil(32);
    let by_threads = limits.threads / 32 / warps;
    let by_registers = warps_by_registers(limits, registers) / warps;
    let by_shared = match (shared + limits.reserved_shared).next_multiple_of(SHARED_UNIT) {
        bytes if bytes > limits.shared => 0,
        bytes => limits.shared / bytes,
    };
    limits.blocks.min(by_threads).min(by_registers).min(by_shared)
}

/// Threads of the largest block that its registers allow.
pub(super) fn max_threads(limits: &Limits, registers: u32) -> u32 {
    (warps_by_registers(limits, registers) * 32).min(1024)
}

fn warps_by_registers(limits: &Limits, registers: u32) -> u32 {
    let a_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
    limits.registers / PARTS / a_warp * PARTS
}

/// The most dynamic shared memory that lets `blocks` blocks of a kernel with `fixed` bytes of its own fit.
pub(super) fn dynamic_shared(limits: &Limits, blocks: u32, fixed: u32) -> u32 {
    let each = limits.shared / blocks.max(1) / SHARED_UNIT * SHARED_UNIT;
    each.saturating_sub(limits.reserved_shared + fixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfbyte_cuda_driver::ComputeCapability;

    /// Values worked out by hand from the published limits.
    #[test]
    fn each_resource_can_be_the_scarce_one() {
        let a100 = Limits::of(ComputeCapability { major: 8, minor: 0 });
        let rtx = Limits::of(ComputeCapability { major: 8, minor: 6 });
        // 2048 threads: 8 blocks of 256, or 6 of them on 1536.
        assert_eq!(blocks(&a100, 256, 32, 0), 8);
        assert_eq!(blocks(&rtx, 256, 32, 0), 6);
        // 128 registers: 65536 / (128 * 32) = 16 warps, 2 blocks of 8.
        assert_eq!(blocks(&a100, 256, 128, 0), 2);
        // 33 registers round up to 40 a thread (1280 a warp, in units of 256): 12 warps a part, 48 in all.
        assert_eq!(blocks(&a100, 64, 33, 0), 24);
        // 64 KiB and the reserved 1 KiB: two in 164 KiB, one in 100 KiB.
        assert_eq!(blocks(&a100, 128, 32, 64 << 10), 2);
        assert_eq!(blocks(&rtx, 128, 32, 64 << 10), 1);
        // The largest block alone, and a byte more.
        assert_eq!(blocks(&a100, 128, 32, 163 << 10), 1);
        assert_eq!(blocks(&a100, 128, 32, (163 << 10) + 1), 0);
        // Small blocks meet the limit on blocks.
        assert_eq!(blocks(&a100, 32, 16, 0), 32);
        assert_eq!(blocks(&rtx, 32, 16, 0), 16);
        assert_eq!(blocks(&a100, 1025, 16, 0), 0);
    }

    #[test]
    fn registers_limit_a_block() {
        let limits = Limits::of(ComputeCapability { major: 8, minor: 0 });
        assert_eq!(max_threads(&limits, 64), 1024);
        // 2080 registers a warp round up to 2304: 7 warps a part.
        assert_eq!(max_threads(&limits, 65), 896);
        assert_eq!(max_threads(&limits, 255), 256);
        assert_eq!(blocks(&limits, 1024, 65, 0), 0);
    }

    #[test]
    fn shared_memory_for_a_number_of_blocks() {
        let limits = Limits::of(ComputeCapability { major: 8, minor: 0 });
        for n in 1..=32 {
            let most = dynamic_shared(&limits, n, 512);
            assert!(blocks(&limits, 32, 16, most + 512) >= n, "{n} blocks with {most} bytes");
            assert!(blocks(&limits, 32, 16, most + 512 + 128) < n, "{n} blocks with more than {most} bytes");
        }
    }
}
