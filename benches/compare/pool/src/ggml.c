// The contender from ggml, llama.cpp's library: a graph of one node that calls an item a thread, on ggml's own pool.

#include <ggml-cpu.h>
#include <ggml.h>
#include <stdlib.h>

struct loop {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    struct ggml_threadpool *pool;
    struct ggml_cplan plan;
    void (*item)(const void *, int);
    const void *item_context;
};

static void node(struct ggml_tensor *out, int thread, int threads, void *data) {
    (void)out;
    (void)threads;
    const struct loop *loop = data;
    loop->item(loop->item_context, thread);
}

void ggml_loop_free(struct loop *loop) {
    if (loop->pool) {
        ggml_threadpool_free(loop->pool);
    }
    if (loop->context) {
        ggml_free(loop->context);
    }
    free(loop->plan.work_data);
    free(loop);
}

// Null when something can't be made.
struct loop *ggml_loop_new(int threads) {
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop) {
        return NULL;
    }
    struct ggml_init_params memory = {.mem_size = 1 << 20};
    loop->context = ggml_init(memory);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    loop->pool = loop->context ? ggml_threadpool_new(&params) : NULL;
    if (!loop->pool) {
        ggml_loop_free(loop);
        return NULL;
    }
    loop->graph = ggml_new_graph(loop->context);
    ggml_build_forward_expand(
        loop->graph,
        ggml_custom_4d(loop->context, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, node, GGML_N_TASKS_MAX, loop)
    );
    loop->plan = ggml_graph_plan(loop->graph, threads, loop->pool);
    loop->plan.work_data = malloc(loop->plan.work_size + 1);
    if (!loop->plan.work_data) {
        ggml_loop_free(loop);
        return NULL;
    }
    return loop;
}

// Zero when the graph was computed.
int ggml_loop_run(struct loop *loop, void (*item)(const void *, int), const void *context) {
    loop->item = item;
    loop->item_context = context;
    return ggml_graph_compute(loop->graph, &loop->plan);
}
