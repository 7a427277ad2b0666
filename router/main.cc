#include "common/app/run_service.h"
#include "router/router_service.h"

int main(int argc, char** argv) {
  return baton::RunService<baton::config::RouterConfig>(
      {"baton-router", "Receives requests and dispatches them to prefill and decode workers."},
      argc,
      argv,
      baton::router::StartRouter);
}
