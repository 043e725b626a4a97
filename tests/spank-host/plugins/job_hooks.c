/* A plugin with the two hooks for which slurmd starts a process in every job. */
#define PLUGIN_NAME "job_hooks"
#include "plugin.h"

#define HOOK(name)                                                             \
	int slurm_spank_##name(void *spank, int argc, char **argv)             \
	{                                                                      \
		(void)spank, (void)argc, (void)argv;                           \
		return 0;                                                      \
	}

HOOK(job_prolog)
HOOK(job_epilog)
