/* What a wrapper that picks a GPU by topology asks NVML, at least: each GPU's CPUs and its
 * links to the others. Prints GPU number ARG, after asking. Usage: nvml-client LIBRARY ARG */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct device *device;

static void *library;

static void *function(const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		fprintf(stderr, "nvml-client: no function %s\n", name);
		exit(1);
	}
	return found;
}

static void check(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "nvml-client: %s answers %d\n", what, code);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int (*init)(void), (*count)(unsigned int *), (*handle)(unsigned int, device *);
	int (*cpus)(device, unsigned int, unsigned long *), (*level)(device, device, int *);
	int (*shut_down)(void);
	device devices[64];
	unsigned long set[16];
	unsigned int number, i, j;

	if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
		fprintf(stderr, "nvml-client: %s\n", argc == 3 ? dlerror() : "usage");
		return 1;
	}
	init = function("nvmlInit_v2");
	count = function("nvmlDeviceGetCount_v2");
	handle = function("nvmlDeviceGetHandleByIndex_v2");
	cpus = function("nvmlDeviceGetCpuAffinity");
	level = function("nvmlDeviceGetTopologyCommonAncestor");
	shut_down = function("nvmlShutdown");
	check(init(), "nvmlInit");
	check(count(&number), "nvmlDeviceGetCount");
	if (number > 64)
		number = 64;
	for (i = 0; i < number; i++) {
		check(handle(i, &devices[i]), "nvmlDeviceGetHandleByIndex");
		check(cpus(devices[i], 16, set), "nvmlDeviceGetCpuAffinity");
		for (j = 0; j < i; j++) {
			int found;
			check(level(devices[i], devices[j], &found),
			      "nvmlDeviceGetTopologyCommonAncestor");
		}
	}
	shut_down();
	printf("%d\n", atoi(argv[2]) % (number ? number : 1));
	return 0;
}
