#include "common/app/run_service.h"
#include "decode_worker/decode_service.h"

int main(int argc, char** argv) {
  return baton::RunService<baton::config::WorkerConfig>(
      {"baton-decode", "Takes KV from prefill workers and generates; serves whole requests, too."},
      argc,
      argv,
      &baton::StartDecodeWorker);
}
