// The kinds of an older operator; nothing is built of it.
module kfpytorch.test/training-operator-1.8

go 1.26.0

require github.com/kubeflow/training-operator v1.8.1
