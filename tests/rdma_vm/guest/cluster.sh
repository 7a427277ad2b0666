#!/bin/bash
# Clusters of real processes over verbs.
exec run_tests rdma_cluster_test
