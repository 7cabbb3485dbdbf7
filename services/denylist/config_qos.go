package denylist

import (
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/qos"
)

// QoS is what the service must know of the load-aware limits to count for all edges
// together. It and the edges must agree.
type QoS struct {
	Cluster    string        `env:"CCNQ_QOS_CLUSTER" envDefault:"off" enum:"off,nats,redis" doc:"where edges count together: nowhere, in the denylist service by way of NATS, or in Redis"`
	MaxActors  int           `env:"CCNQ_QOS_CLUSTER_MAX_TRACKED_ACTORS" envDefault:"50000" min:"1" max:"1000000" doc:"hosts, addresses and subnets that are counted for the cluster, so many of each; those with the most requests stay"`
	IPRate     config.Number `env:"CCNQ_QOS_CLUSTER_MAX_IP_RATE" envDefault:"0" doc:"requests a second of one address over all edges; 0 is no limit"`
	SubnetRate config.Number `env:"CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE" envDefault:"0" doc:"requests a second of one subnet over all edges; 0 is no limit"`
	HostRatio  config.Number `env:"CCNQ_QOS_CLUSTER_MAX_HOST_RATIO" envDefault:"0" doc:"share of all requests of the cluster that one host may have; 0 is no limit"`
	UniqueIPs  config.Number `env:"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS" envDefault:"0.5" doc:"addresses of an IPv4 subnet that one edge must have seen before the subnet is refused everywhere: below 1 a share of the subnet, from 1 on a number; 1 lets the rate alone decide"`
	MaxAge     config.Millis `env:"CCNQ_QOS_MAX_AGE_MS" envDefault:"10000" min:"1" max:"600000" doc:"how far back requests count"`
	SubnetBits int           `env:"CCNQ_QOS_SUBNET_MASK_BITS" envDefault:"24" min:"20" max:"30" doc:"prefix that makes an IPv4 subnet; an IPv6 subnet is a /64"`
	Compat     bool          `env:"CCNQ_QOS_COMPAT" envDefault:"false" doc:"decide as connect-qos 5.7.0 does, defects included"`
}

// limits are the settings as package qos takes them.
func (q QoS) limits() qos.ClusterLimits {
	unique := q.UniqueIPs.Float()
	if q.Compat {
		unique = 1 // it came after the version that Compat follows
	}
	return qos.ClusterLimits{
		Window: q.MaxAge.Duration(), MaxTrackedActors: q.MaxActors,
		MaxIPRate: q.IPRate.Float(), MaxSubnetRate: q.SubnetRate.Float(), MaxHostRatio: q.HostRatio.Float(),
		RequiredIPs: qos.RequiredIPs(unique, q.SubnetBits), Compat: q.Compat,
	}
}

func (q QoS) validate() []string {
	if q.UniqueIPs == 0 {
		return []string{"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS: 0 is not a positive number"}
	}
	return nil
}
