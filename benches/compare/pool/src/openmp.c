// The OpenMP contender: one parallel loop of as many items as threads.

void openmp_loop(int threads, void (*item)(const void *, int), const void *context) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; i++) {
        item(context, i);
    }
}
