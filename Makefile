# Measured beside other libraries, on a CPU in under ten minutes; `make bench DEVICE=cuda` on a GPU.
DEVICE ?= cpu

.PHONY: bench
bench:
	pip install -q -e '.[bench]'
	python benchmarks/augment.py --device $(DEVICE)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/operators.py)
	python benchmarks/loss.py --device $(DEVICE)
	python benchmarks/data.py --device $(DEVICE)
	python benchmarks/train.py --device $(DEVICE)
	$(if $(filter cpu,$(DEVICE)),python benchmarks/write_performance.py)
