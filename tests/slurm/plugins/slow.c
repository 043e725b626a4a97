/* Holds up the first task of a step in task_init, and writes its process id into the file
 * that is its argument: until the test has killed it. */
#define PLUGIN_NAME "slow"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../../spank-host/plugins/plugin.h"

extern int spank_getenv(void *, const char *, char *, int);

int slurm_spank_task_init(void *spank, int argc, char **argv)
{
	char id[16] = "";
	FILE *file;

	spank_getenv(spank, "SLURM_LOCALID", id, sizeof id);
	if (argc < 1 || strcmp(id, "0") || !(file = fopen(argv[0], "w")))
		return 0;
	fprintf(file, "%d\n", (int)getpid());
	fclose(file);
	sleep(60);
	return 0;
}
