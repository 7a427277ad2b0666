#!/bin/bash
# The conformance suite of transports over verbs, and the tests with a second process.
exec rdma_guest_test --gtest_color=no --gtest_brief=1 --gtest_filter='-Rdma*'
