// The source of the targets baton_precompiled_*, which exist for their precompiled headers.
