#!/bin/bash
# The conformance suite of transports over verbs, and the tests with a second process.
exec run_tests rdma_guest_test '-Rdma*'
