/* The least that a SPANK plugin can be: what loading one costs. */
#define PLUGIN_NAME "empty"
#include "plugin.h"

int slurm_spank_init(void *spank, int argc, char **argv)
{
	(void)spank, (void)argc, (void)argv;
	return 0;
}
