/* Writes the files of this folder, see README.md: conversations that an earlier version saved. */
#include <stdio.h>
#include <stdlib.h>

#include "weir/weir.h"

#include "conversations.h"

#define CHECK(call)                                                              \
    do {                                                                         \
        if ((call) != WEIR_OK) {                                                 \
            fprintf(stderr, "%s: %s\n", #call, weir_last_error());               \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static weir_status write_part(void *file, const weir_write_info *info) {
    return fwrite(info->data, 1, info->n_bytes, (FILE *)file) == info->n_bytes ? WEIR_OK : WEIR_ERR_IO;
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    if (argc != 3) return 2; /* MODEL FOLDER */
    CHECK(weir_runtime_create(NULL, &runtime));
    CHECK(weir_model_open(runtime, argv[1], NULL, &model));
    for (size_t i = 0; i < N_CONVERSATIONS; ++i) {
        const conversation *c = &conversations[i];
        weir_session_options options = options_of_conversation(c, 0);
        weir_session *session = NULL;
        char path[4096];
        FILE *file;
        snprintf(path, sizeof(path), "%s/%s.session", argv[2], c->name);
        file = fopen(path, "wb");
        if (file == NULL) return 1;
        CHECK(weir_session_create(model, &options, &session));
        CHECK(have_conversation(session, c));
        CHECK(weir_session_save(session, write_part, file));
        if (fclose(file) != 0) return 1;
        snprintf(path, sizeof(path), "%s/%s.next", argv[2], c->name);
        file = fopen(path, "w");
        if (file == NULL) return 1;
        for (uint32_t step = 0; step < N_NEXT; ++step) {
            weir_token best = -1;
            float ahead = 0;
            CHECK(best_next(session, c, step, &best, &ahead));
            fprintf(file, "%d %.3f\n", (int)best, (double)ahead);
        }
        if (fclose(file) != 0) return 1;
        weir_session_destroy(session);
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return 0;
}
