#include "common/app/run_service.h"
#include "common/worker/rank_service.h"
#include "prefill_worker/prefill_service.h"

int main(int argc, char** argv) {
  return baton::RunService<baton::config::WorkerConfig>(
      {"baton-prefill", "Computes prompts and sends their KV to decode workers."},
      argc,
      argv,
      &baton::StartPrefillWorker,
      &baton::RunPrefillRank);
}
