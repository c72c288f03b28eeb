# Measured beside other libraries, on a CPU in under fifteen minutes; `make bench DEVICE=cuda` on a GPU, without the page.
DEVICE ?= cpu
TRAIN_cuda = --encoder resnet50 --recipe mast_c15_small --size 224 --steps 10

.PHONY: bench faults notebook size slow
bench:
	pip install -q -e '.[bench]'
	python benchmarks/augment.py --device $(DEVICE)
	python benchmarks/channels.py --device $(DEVICE)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/operators.py)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/fused.py)
	python benchmarks/loss.py --device $(DEVICE)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/probes.py)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/insight.py)
	python benchmarks/data.py --device $(DEVICE)
	python benchmarks/train.py --device $(DEVICE) $(TRAIN_$(DEVICE))
	$(if $(filter cpu,$(DEVICE)),python benchmarks/write_performance.py)

# The notebook of the manual with what it shows, in about a minute.
notebook:
	pip install -q -e '.[docs]'
	python docs/notebook.py

# Nonsense, damage, full disks and kills, for so many seconds, below a new temporary folder.
SECONDS ?= 1800
faults:
	cd benchmarks && OMP_NUM_THREADS=1 python -m faults --seconds $(SECONDS) --out results/faults.json

# Lines, words, options, files on the way of an image, circles of imports; tests hold them.
size:
	@python benchmarks/size.py 2>/dev/null

# The tests that `pytest` alone leaves out: several processes, whole trainings, interpreted kernels.
slow:
	pytest -m slow
