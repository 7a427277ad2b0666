#include "common/app/run_service.h"
#include "common/worker/rank_service.h"
#include "decode_worker/decode_service.h"

int main(int argc, char** argv) {
  return baton::RunService<baton::config::WorkerConfig>(
      {"baton-decode",
       "Receives KV from prefill workers and generates; also serves requests alone."},
      argc,
      argv,
      &baton::StartDecodeWorker,
      &baton::RunDecodeRank);
}
