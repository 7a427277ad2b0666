#!/bin/bash
# The conformance suite of transports over verbs, and the tests with a second process or with failing calls.
exec run_tests rdma_guest_test '-Rdma*'
