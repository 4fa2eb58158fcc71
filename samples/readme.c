#include <qinfer/qinfer.h>
#include <stdio.h>
int main(int argc, char** argv) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 64;
  if (argc != 3) return fputs("usage: program MODEL PROMPT\n", stderr), 2;
  int failed = qinfer_runtime_create(QINFER_ABI, NULL, &runtime, &err) < 0 ||
               qinfer_model_load_path(runtime, argv[1], QINFER_STRLEN, &model, &err) < 0 ||
               qinfer_engine_create(model, NULL, &engine, &err) < 0 ||
               qinfer_session_create(engine, &session, &err) < 0 ||
               qinfer_session_append_text(session, argv[2], QINFER_STRLEN, 0, &err) < 0 ||
               qinfer_generate_begin(session, &options, &task, &err) < 0;
  while (!failed && qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err) == QINFER_OK)
    fwrite(event.text.data, 1, event.text.size, stdout);
  qinfer_task_release(task), qinfer_session_release(session), qinfer_engine_release(engine);
  qinfer_model_release(model), qinfer_runtime_release(runtime);
  return err.status < 0 ? (fprintf(stderr, "%s\n", err.message), 1) : 0;
}
